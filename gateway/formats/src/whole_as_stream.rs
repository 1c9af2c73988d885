//! A whole answer as the events of a client's stream, for a client that asked for a stream and whose provider sent none.

use crate::answer::Answer;
use crate::conversation::Part;
use crate::delta::{Delta, Events, StreamWriter};
use crate::error::ResponseError;
use crate::stream_converter::{MAX_PARTS, check_count};

/// The events of `answer`. Each part is one piece.
pub(crate) fn events_of(answer: Answer, writer: &mut dyn StreamWriter) -> Result<Vec<u8>, ResponseError> {
    check_count(answer.parts.len(), MAX_PARTS, "body")?;
    let deltas = deltas(answer);
    let mut out = Events::default();
    for delta in deltas {
        writer.write(delta, &mut out)?;
    }
    Ok(out.into_bytes())
}

fn deltas(answer: Answer) -> Vec<Delta> {
    let Answer { about, parts, finish, usage } = answer;
    let mut deltas = vec![Delta::Start(about)];
    for part in parts {
        match part {
            Part::Text(text) => deltas.push(Delta::Text(text)),
            Part::Refusal(text) => deltas.push(Delta::Refusal(text)),
            Part::Reasoning { text, signature } => {
                deltas.extend((!text.is_empty()).then_some(Delta::Reasoning(text)));
                deltas.extend(signature.map(Delta::Signature));
            }
            Part::RedactedReasoning(data) => deltas.push(Delta::RedactedReasoning(data)),
            Part::ToolCall(call) => {
                deltas.push(Delta::ToolCall { id: call.id, name: call.name });
                deltas.push(Delta::Arguments(call.arguments));
            }
            Part::Image(_) | Part::ToolResult(_) => unreachable!("no answer has them"),
        }
    }
    deltas.push(Delta::Finish(finish));
    deltas.extend(usage.map(Delta::Usage));
    deltas.push(Delta::End);
    deltas
}
