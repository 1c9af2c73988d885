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
        while let Some(at) = end_of_line(rest) {
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

    /// The bytes that are read when these come: with them, of the event that has not ended yet, the line or all of it, if
    /// one of them ends.
    pub(crate) fn ended_bytes(&self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        if self.after_return {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        let (mut before, mut ended) = (self.line.len(), 0);
        while let Some(at) = end_of_line(rest) {
            if before + at == 0 {
                return self.kept_bytes() + bytes.len();
            }
            ended = self.line.len();
            before = 0;
            let is_return = rest[at] == b'\r';
            rest = &rest[at + 1..];
            if is_return {
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        ended + bytes.len()
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

/// The place of the next byte that ends a line.
fn end_of_line(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'))
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
    fn what_is_read_is_what_ends() {
        let kept: [(&[u8], usize, usize); 5] = [
            (b"", 0, 0),
            (b"data: 0123456789", 16, 16),
            (b"data: 0123456789\r", 0, 10),
            (b"data: 0123456789\r\n", 0, 10),
            (b"data: 0123456789\n: 12", 4, 14),
        ];
        for (before, of_line, of_event) in kept {
            let mut reader = EventReader::default();
            reader.feed(before, |_| Ok(())).unwrap();
            let read = |bytes: &[u8]| reader.ended_bytes(bytes) - bytes.len();
            for (bytes, expected) in
                [(&b""[..], 0), (b"x", 0), (b":\n", of_line), (b"x\r\n", of_line), (b":\r:\n:", of_line)]
            {
                assert_eq!(read(bytes), expected, "{before:?} {bytes:?}");
            }
            for bytes in [&b"x\n\n"[..], b"x\r\r", b"x\r\n\r\n", b"x\n\ny\n", b":\n\r"] {
                assert_eq!(read(bytes), of_event, "{before:?} {bytes:?}");
            }
        }
        // The line feed belongs to the carriage return before it.
        let mut reader = EventReader::default();
        reader.feed(b"data: 0123456789\r", |_| Ok(())).unwrap();
        assert_eq!((reader.ended_bytes(b"\n"), reader.ended_bytes(b"\n\n")), (1, 12));
        // Nothing is kept of an event that has ended, however often its end is repeated.
        reader.feed(b"\n\n", |_| Ok(())).unwrap();
        assert_eq!(reader.ended_bytes(b"\n"), 1);
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
