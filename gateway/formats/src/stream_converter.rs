//! The conversion of a streamed response: server-sent events in, server-sent events out.

use std::fmt;

use crate::delta::{Delta, Events, StreamReader, StreamWriter};
use crate::error::ResponseError;
use crate::server_sent_events::EventReader;

/// The most parts of a whole answer. Each becomes one or a few events, with the id of the answer.
pub(crate) const MAX_PARTS: usize = 10_000;

/// The most parts of one event of a provider. What they become is written at once.
const MAX_PARTS_OF_EVENT: usize = 512;

/// The longest answer, in bytes, that is repeated together with the events before its end.
const SHORT_ANSWER: usize = 256 * 1024;

/// Converts a streamed response piece by piece. The pieces may be cut anywhere.
///
/// What the client gets looks complete only if the provider's stream was: an end is written when the provider's end was
/// read. After an error the converter converts nothing more, and the client's stream is to be broken off.
pub struct StreamConverter {
    events: EventReader,
    reader: Box<dyn StreamReader>,
    writer: Box<dyn StreamWriter>,
    state: State,
}

/// How far a stream has come.
#[derive(Debug)]
enum State {
    Running,
    /// The provider's end or error was read, and is still to be written.
    Ending(Delta),
    /// The end was written. Nothing may follow.
    Ended,
    Failed(ResponseError),
}

impl StreamConverter {
    pub(crate) fn new(reader: Box<dyn StreamReader>, writer: Box<dyn StreamWriter>) -> Self {
        Self { events: EventReader::default(), reader, writer, state: State::Running }
    }

    /// The bytes of the response that it keeps: the event that has not ended yet, and what the client gets again at the
    /// end. At most 32 MiB.
    pub fn kept_bytes(&self) -> usize {
        self.events.kept_bytes() + self.writer.kept_bytes()
    }

    /// Whether the end of the stream was read, and is written by the next call because it repeats a long answer.
    pub const fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending(_))
    }

    /// The bytes that it works on when it takes these: with them, of all that it keeps, the event that ends or the answer
    /// that is repeated.
    pub fn work_on(&self, bytes: &[u8]) -> usize {
        match self.state {
            State::Running => self.events.ended_bytes(bytes),
            State::Ending(_) => self.writer.kept_bytes(),
            State::Ended | State::Failed(_) => 0,
        }
    }

    /// The bytes that it works on at the end of the response, of which `last` come then.
    pub fn work_at_end(&self, last: &[u8]) -> usize {
        match self.state {
            State::Running => self.kept_bytes() + last.len(),
            State::Ending(_) => self.writer.kept_bytes(),
            State::Ended | State::Failed(_) => 0,
        }
    }

    /// The most bytes that it reads as JSON when it takes these. What it repeats at the end of the stream is only written.
    pub fn read_with(&self, bytes: &[u8]) -> usize {
        match self.state {
            State::Running => self.events.kept_bytes() + bytes.len(),
            State::Ending(_) | State::Ended | State::Failed(_) => 0,
        }
    }

    /// Takes the next bytes of the provider and returns what the client gets now, which may be nothing.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ResponseError> {
        let mut out = Events::default();
        match &self.state {
            State::Running => {}
            State::Ending(_) => {
                self.write_end(&mut out)?;
                return Ok(out.into_bytes());
            }
            State::Ended => return Ok(Vec::new()),
            State::Failed(error) => return Err(error.clone()),
        }
        let Self { events, reader, writer, state } = self;
        let fed = events.feed(bytes, |data| {
            let mut deltas = Vec::new();
            if matches!(state, State::Running) {
                reader.event(data, &mut deltas)?;
            }
            check_count(deltas.len(), MAX_PARTS_OF_EVENT, "event")?;
            write(deltas, writer.as_mut(), state, &mut out)
        });
        // Bytes after the end are nobody's.
        if let Err(error) = fed
            && matches!(self.state, State::Running)
        {
            self.state = State::Failed(error.clone());
            let written = out.into_bytes();
            // What came before the error passes first; the next call returns the error.
            return if written.is_empty() { Err(error) } else { Ok(written) };
        }
        Ok(out.into_bytes())
    }

    /// Takes the end of the provider's response. A stream that broke off is not completed.
    pub fn finish(mut self) -> Result<Vec<u8>, ResponseError> {
        let mut out = Events::default();
        match self.state {
            State::Running | State::Ending(_) => {}
            State::Ended => return Ok(Vec::new()),
            State::Failed(error) => return Err(error),
        }
        let mut deltas = Vec::new();
        self.reader.end(&mut deltas);
        write(deltas, self.writer.as_mut(), &mut self.state, &mut out)?;
        self.write_end(&mut out)?;
        Ok(out.into_bytes())
    }

    /// Writes the end if it is still to be written. Nothing may follow.
    fn write_end(&mut self, out: &mut Events) -> Result<(), ResponseError> {
        let State::Ending(end) = std::mem::replace(&mut self.state, State::Ended) else { return Ok(()) };
        self.writer.write(end, out)
    }
}

/// Refuses what would become too many events.
pub(crate) fn check_count(parts: usize, most: usize, field: &str) -> Result<(), ResponseError> {
    if parts > most {
        let why = format!("it has more than {most} parts");
        return Err(ResponseError::Unsupported { field: field.to_owned(), why });
    }
    Ok(())
}

/// Writes deltas up to the end, and the end itself if it repeats no long answer.
fn write(
    deltas: Vec<Delta>,
    writer: &mut dyn StreamWriter,
    state: &mut State,
    out: &mut Events,
) -> Result<(), ResponseError> {
    for delta in deltas {
        if !matches!(state, State::Running) {
            break;
        }
        let is_last = matches!(delta, Delta::End | Delta::Failure(_));
        if is_last && writer.kept_bytes() > SHORT_ANSWER {
            *state = State::Ending(delta);
            break;
        }
        writer.write(delta, out)?;
        if is_last {
            *state = State::Ended;
        }
    }
    Ok(())
}

impl fmt::Debug for StreamConverter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamConverter").field("state", &self.state).finish_non_exhaustive()
    }
}
