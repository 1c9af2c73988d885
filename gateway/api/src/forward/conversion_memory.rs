//! The memory that long bodies need for a moment while they are read and converted: their JSON values, and what is written
//! of them. It is bounded for a gateway: a body waits until what it may need is free. The bodies themselves, before and
//! after, take theirs from [`crate::body_memory`].

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body_memory::FREE_BYTES;

/// What all bodies need at once, in KiB. One that may need more takes all of it.
const ALL_KIB: u32 = 256 * 1024;

/// What a byte may need, in bytes. A text is kept as a value and written up to five times, into memory that doubles.
const FOR_BYTE: usize = 10;

/// What a value may need, in bytes: an object with one member takes 240, a list with one value 130.
const FOR_VALUE: usize = 256;

/// How much there is to read in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    bytes: usize,
    /// The most values that it may have within others, also in texts that are JSON themselves. Each follows a byte that is
    /// counted.
    values: usize,
}

impl Extent {
    /// That of a piece.
    pub(super) fn of(piece: &[u8]) -> Self {
        let is_before_value = |(at, byte): &(usize, &u8)| match byte {
            b',' | b'[' | b'{' => true,
            // In a text, each of the others may be escaped, by its number alone.
            b'\\' => piece.get(at + 1).is_none_or(|next| *next == b'u'),
            _ => false,
        };
        Self { bytes: piece.len(), values: piece.iter().enumerate().filter(is_before_value).count() }
    }

    /// That of texts of so many bytes, which are only written.
    pub(super) const fn of_texts(bytes: usize) -> Self {
        Self { bytes, values: 0 }
    }

    /// The largest of so many bytes.
    pub(super) const fn at_most(bytes: usize) -> Self {
        Self { bytes, values: bytes / 2 }
    }

    /// That of this piece and the next one.
    pub(super) const fn and(self, next: Self) -> Self {
        let bytes = self.bytes.saturating_add(next.bytes);
        Self { bytes, values: self.values.saturating_add(next.values) }
    }

    /// What it may need, in KiB.
    fn kib(self) -> u32 {
        let for_values = self.values.saturating_mul(FOR_VALUE);
        let bytes = self.bytes.saturating_mul(FOR_BYTE).saturating_add(for_values);
        u32::try_from(bytes / 1024).map_or(ALL_KIB, |kib| kib.min(ALL_KIB))
    }
}

/// The memory of a gateway: a permit for each KiB.
#[derive(Debug, Clone)]
pub(super) struct ConversionMemory(Arc<Semaphore>);

impl Default for ConversionMemory {
    fn default() -> Self {
        let permits = usize::try_from(ALL_KIB).expect("as many as a semaphore may have");
        Self(Arc::new(Semaphore::new(permits)))
    }
}

impl ConversionMemory {
    /// Waits until the memory for a body is free, in the order in which bodies came. It is free again when the permit is
    /// dropped. A short body needs none: it is converted by a thread that serves, of which there are few.
    pub(super) async fn take(&self, extent: Extent) -> Option<OwnedSemaphorePermit> {
        if extent.bytes <= FREE_BYTES {
            return None;
        }
        let permit = Arc::clone(&self.0).acquire_many_owned(extent.kib()).await;
        Some(permit.expect("the memory of a gateway is never closed"))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn the_values_of_a_body_are_counted_in_its_pieces_and_in_texts_that_are_json() {
        for (json, within) in [
            (r#"{"a":[1,2,3],"b":"x"}"#, 5),
            (r#"{"arguments":"[1,2]"}"#, 3),
            (r#"{"arguments":"\u005b1\u002c2]"}"#, 3),
            (r#"{"arguments":"[\"\\u005b1\\u002c2]\"\n]"}"#, 4),
            ("[[[]]]", 2),
            ("0", 0),
        ] {
            let extent = Extent::of(json.as_bytes());
            assert!(extent.values >= within, "{json}: {extent:?}");
            for at in 0..=json.len() {
                let (begin, end) = json.as_bytes().split_at(at);
                let in_pieces = Extent::of(begin).and(Extent::of(end));
                let is_within_escape = begin.ends_with(b"\\") && !end.starts_with(b"u");
                let values = extent.values + usize::from(is_within_escape);
                assert_eq!(in_pieces, Extent { values, ..extent }, "{json} at {at}");
            }
            assert!(Extent::at_most(json.len()).values >= within, "{json}");
        }
    }

    #[test]
    fn bodies_need_memory_by_their_values_more_than_by_their_bytes() {
        let text = Extent::of("x".repeat(2 * MIB).as_bytes());
        let lists = Extent::of("[0],".repeat(MIB / 2).as_bytes());
        assert_eq!(text.bytes, lists.bytes);
        assert_eq!(text.kib(), 20 * 1024);
        assert_eq!(Extent::of_texts(2 * MIB), text);
        let escaped = Extent::of(r#"a\nb\"c\\"#.repeat(2 * MIB / 9).as_bytes());
        assert_eq!(escaped.values, 1, "only the last one may go on as the number of another character");
        assert_eq!(lists.kib(), ALL_KIB);
        assert_eq!(Extent::at_most(usize::MAX).kib(), ALL_KIB);
    }

    #[tokio::test]
    async fn bodies_wait_until_the_memory_that_they_may_need_is_free() {
        let memory = ConversionMemory::default();
        let text = Extent { bytes: 10 * MIB, values: 0 };
        let first = memory.take(text).await.unwrap();
        let second = memory.take(text).await.unwrap();
        let mut third = Box::pin(memory.take(text));
        assert!(third.as_mut().now_or_never().is_none(), "only 56 MiB are left");
        let short = Extent::at_most(FREE_BYTES);
        assert!(memory.take(short).now_or_never().unwrap().is_none(), "a short body needs none");
        // One that needs more than there is waits for all of it.
        let mut longest = Box::pin(memory.take(Extent::at_most(usize::MAX)));
        assert!(longest.as_mut().now_or_never().is_none());
        drop(second);
        let third = third.await;
        assert!(longest.as_mut().now_or_never().is_none());
        drop((third, first));
        let longest = longest.await;
        assert_eq!(memory.0.available_permits(), 0);
        // One whose caller leaves while it waits takes nothing.
        let mut left = Box::pin(memory.take(text));
        assert!(left.as_mut().now_or_never().is_none());
        drop((left, longest));
        assert_eq!(memory.0.available_permits(), usize::try_from(ALL_KIB).unwrap());
    }
}
