//! Header names that several parts of the interface share, and the headers that belong to one message or connection.

use http::{HeaderMap, HeaderName};

/// Names the call, for finding it in logs; on the forward endpoint it is the request's id.
pub(crate) const SERVICE_REQUEST_ID: HeaderName = HeaderName::from_static("x-service-request-id");

/// The headers that frame one message, or that speak of its connection or to the neighbour there (RFC 9112, section 6;
/// RFC 9110, sections 7.6, 10.1.1 and 11.7), besides those that `Connection` names.
pub(crate) static OF_ONE_HOP: Names<11> = Names::new([
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
]);

/// `Content-Length` among [`OF_ONE_HOP`].
pub(crate) const LENGTH: u32 = 1 << 1;

/// The hop-by-hop headers among [`OF_ONE_HOP`]: all but the length. The gateway itself answers `Expect`.
pub(crate) const HOP_BY_HOP: u32 = !LENGTH;

/// Those of [`OF_ONE_HOP`] that frame a message or speak of its connection: all but `Proxy-Authenticate`,
/// `Proxy-Authorization` and `Expect`, which speak to the neighbour.
const FRAMING: u32 = !((1 << 4) | (1 << 5) | (1 << 10));

/// Whether the header frames one message, or speaks of its connection.
pub(crate) fn is_framing(name: &HeaderName) -> bool {
    OF_ONE_HOP.place(name.as_str()).is_some_and(|place| FRAMING & (1 << place) != 0)
}

/// Removes what frames another message: the HTTP library frames each one by its own body.
pub(crate) fn without_framing(headers: &mut HeaderMap) {
    let found = OF_ONE_HOP.among(headers);
    OF_ONE_HOP.remove(headers, found & FRAMING);
}

/// Names of headers, in lower case, that are looked for together. One pass over the headers that are there finds them:
/// most of the names are absent, and to look each up takes longer. A set of them has a bit for the place of each.
#[derive(Debug)]
pub(crate) struct Names<const N: usize> {
    names: [&'static str; N],
    /// A bit for each length that a name has. It tells most other headers apart.
    lengths: u64,
}

impl<const N: usize> Names<N> {
    /// At most 32 names of at most 63 bytes.
    pub(crate) const fn new(names: [&'static str; N]) -> Self {
        assert!(N <= 32, "a set has a bit for each");
        let mut lengths = 0_u64;
        let mut place = 0;
        while place < N {
            assert!(names[place].len() < 64, "a name is no longer than the bits of the lengths");
            lengths |= 1_u64 << names[place].len();
            place += 1;
        }
        Self { names, lengths }
    }

    /// The place of a name in lower case among these.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        if name.len() >= 64 || (self.lengths >> name.len()) & 1 == 0 {
            return None;
        }
        self.names.iter().position(|known| *known == name)
    }

    /// The name at a place.
    pub(crate) const fn at(&self, place: usize) -> &'static str {
        self.names[place]
    }

    /// The set of those that are among the headers.
    pub(crate) fn among(&self, headers: &HeaderMap) -> u32 {
        let mut found = 0;
        for name in headers.keys() {
            if let Some(place) = self.place(name.as_str()) {
                found |= 1_u32 << place;
            }
        }
        found
    }

    /// The names of a set, in their order here.
    pub(crate) fn of(&self, found: u32) -> impl Iterator<Item = &'static str> {
        let names = self.names.iter().copied().enumerate();
        names.filter(move |(place, _)| found & (1_u32 << *place) != 0).map(|(_, name)| name)
    }

    /// Removes all values of the headers of a set, in the order of their names here: with each removal the last header takes
    /// the removed one's place.
    pub(crate) fn remove(&self, headers: &mut HeaderMap, found: u32) {
        for name in self.of(found) {
            headers.remove(name);
        }
    }

    /// The same for all that are there.
    pub(crate) fn remove_from(&self, headers: &mut HeaderMap) {
        let found = self.among(headers);
        self.remove(headers, found);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_frames_a_message_and_what_passes_one_hop_alone_are_these() {
        assert_eq!(
            OF_ONE_HOP.of(FRAMING).collect::<Vec<_>>(),
            [
                "connection",
                "content-length",
                "keep-alive",
                "proxy-connection",
                "te",
                "trailer",
                "transfer-encoding",
                "upgrade",
            ]
        );
        assert_eq!(
            OF_ONE_HOP.of(HOP_BY_HOP).collect::<Vec<_>>(),
            [
                "connection",
                "keep-alive",
                "proxy-connection",
                "proxy-authenticate",
                "proxy-authorization",
                "te",
                "trailer",
                "transfer-encoding",
                "upgrade",
                "expect",
            ]
        );
        assert_eq!(OF_ONE_HOP.of(LENGTH).collect::<Vec<_>>(), ["content-length"]);
        assert!(
            is_framing(&HeaderName::from_static("te")) && is_framing(&HeaderName::from_static("upgrade"))
        );
        assert!(!is_framing(&HeaderName::from_static("expect")) && !is_framing(&SERVICE_REQUEST_ID));
    }

    #[test]
    fn each_name_has_its_place_and_no_other_one_has_any() {
        for (place, name) in OF_ONE_HOP.names.into_iter().enumerate() {
            assert_eq!((OF_ONE_HOP.place(name), OF_ONE_HOP.at(place)), (Some(place), name));
        }
        // As long as names here, of no length at all, and longer than any.
        let long = [63, 64, 65, 128].map(|length| "x".repeat(length));
        let others = ["tf", "expecu", "user-agent", "", "t", "content-length-"].map(str::to_owned);
        for name in others.iter().chain(&long) {
            assert_eq!(OF_ONE_HOP.place(name), None, "{name}");
        }
    }

    #[test]
    fn all_values_of_what_is_found_are_removed_and_the_rest_stays() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("te", "1"),
            ("x-a", "1"),
            ("content-length", "5"),
            ("te", "2"),
            ("expect", "100-continue"),
            ("x-a", "2"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        without_framing(&mut headers);
        let shown =
            |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        let left: Vec<_> = headers.iter().map(shown).collect();
        assert_eq!(left, ["expect: 100-continue", "x-a: 1", "x-a: 2"]);
        OF_ONE_HOP.remove_from(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-a"]);
    }
}
