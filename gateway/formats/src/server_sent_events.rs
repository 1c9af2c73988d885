//! The framing of server-sent events, read in pieces that may be cut anywhere.

use crate::error::ResponseError;

/// The most bytes of an event, all of its data included.
pub(crate) const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// Splits a stream of bytes into the data of its events. Fields other than `data` are not needed.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The data of the event that has not ended yet.
    data: Option<Vec<u8>>,
    /// Whether the last byte was a carriage return, which a line feed may follow.
    after_return: bool,
    /// Whether the first line was read, which may begin with a byte order mark.
    has_begun: bool,
}

impl EventReader {
    /// Takes the next bytes and gives the data of each event that ends in them.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut event: impl FnMut(&str) -> Result<(), ResponseError>,
    ) -> Result<(), ResponseError> {
        let mut rest = bytes;
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.add(&rest[..at])?;
            let is_return = rest[at] == b'\r';
            rest = &rest[at + 1..];
            if is_return {
                self.after_return = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            self.end_line(&mut event)?;
        }
        self.add(rest)
    }

    /// The bytes of the event that has not ended yet.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, Vec::len)
    }

    /// Adds a part of a line.
    fn add(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        if self.kept_bytes() + bytes.len() > MAX_EVENT_BYTES {
            return Err(ResponseError::TooLong { limit_bytes: MAX_EVENT_BYTES });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes a whole line. An empty one ends the event.
    fn end_line(
        &mut self,
        event: &mut impl FnMut(&str) -> Result<(), ResponseError>,
    ) -> Result<(), ResponseError> {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let line = line.strip_prefix(b"\xef\xbb\xbf").filter(|_| is_first).unwrap_or(&line);
        if line.is_empty() {
            let Some(data) = self.data.take() else { return Ok(()) };
            let data = String::from_utf8(data)
                .map_err(|error| ResponseError::NotJson { message: error.to_string() })?;
            return event(&data);
        }
        let value = if line == b"data" { Some(&[][..]) } else { line.strip_prefix(b"data:") };
        if let Some(value) = value {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                none @ None => *none = Some(value.to_vec()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for piece in pieces {
            let event = |data: &str| {
                events.push(data.to_owned());
                Ok(())
            };
            reader.feed(piece, event).unwrap();
        }
        events
    }

    #[test]
    fn events_end_at_an_empty_line_of_any_kind() {
        let stream =
            "\u{feff}data: a\ndata:b\r\n\r\n: comment\revent: x\rdata\r\rdata: c\n\nid: 1\n\ndata: cut off\n";
        assert_eq!(events(&[stream.as_bytes()]), ["a\nb", "", "c"]);
        let single: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(events(&single), ["a\nb", "", "c"]);
    }

    #[test]
    fn an_event_that_is_too_long_is_refused() {
        let mut reader = EventReader::default();
        let line = vec![b'x'; MAX_EVENT_BYTES];
        reader.feed(&line, |_| Ok(())).unwrap();
        let refused = reader.feed(b"x", |_| Ok(()));
        assert_eq!(refused, Err(ResponseError::TooLong { limit_bytes: MAX_EVENT_BYTES }));
    }
}
