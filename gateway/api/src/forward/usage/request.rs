//! Reads the options of a request body that metering needs: the model, the output limit and the reporting of usage.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::members::{MAX_MEMBERS, Member, Unread, read_members};
use super::output_limit::{BedrockLimit, LimitMember, LimitObject, OutputLimits};
use super::provider_text::string;

/// The number of answers requested at once.
const COUNTS: [&str; 4] = ["n", "best_of", "candidateCount", "candidate_count"];

/// The members that may list several inputs, each with answers of its own. A list of messages counts as well. The last three are
/// those of Cohere's embeddings.
const INPUTS: [&str; 6] = ["input", "prompt", "requests", "images", "inputs", "texts"];

/// The members that decide the price of a call and the reporting of its usage.
const DECISIVE: [&str; 8] = [
    "model",
    "stream",
    "stream_options",
    "background",
    "input",
    "generationConfig",
    "generation_config",
    "inferenceConfig",
];

/// The members that bound the output, in the body or in an object of options in it.
const BOUNDS: [&str; 9] = joined(&[&LimitMember::NAMES, &COUNTS]);

/// All members of a body that are read.
const KNOWN: [&str; 23] = joined(&[&DECISIVE, &BOUNDS, &INPUTS]);

/// The names of these lists in their order, `N` in all.
const fn joined<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut all = [""; N];
    let (mut count, mut list) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            all[count] = lists[list][at];
            count += 1;
            at += 1;
        }
        list += 1;
    }
    assert!(count == N, "the lists have so many names");
    all
}

/// The member of `stream_options` that requests usage.
const INCLUDE_USAGE: &str = "include_usage";

/// The stream that a request body asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RequestedStream {
    /// None: the answer comes whole.
    #[default]
    None,
    /// One that is to report its usage, by `stream_options.include_usage`.
    WithUsage,
    /// One that is not asked for its usage.
    WithoutUsage,
}

/// The options that a request body sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RequestedOptions {
    /// The model.
    pub(crate) model: Option<String>,
    /// A decisive member that the body gives more than once or in another case, so that the provider may read another
    /// value; the model comes first.
    pub(crate) ambiguous: Option<&'static str>,
    /// Whether the body names more than one model, in whatever spelling.
    pub(crate) repeats_model: bool,
    /// The stream that is requested.
    pub(crate) stream: RequestedStream,
    /// Whether the answer is produced in the background, after a response without usage.
    pub(crate) is_background: bool,
    /// The output limits of one answer.
    pub(crate) limits: OutputLimits,
    /// The output limit of one answer at Amazon Bedrock, instead of `limits`.
    pub(crate) bedrock_limit: Option<BedrockLimit>,
    /// The answers that an output limit counts for: to each prompt as many as the body wants. At least 1; `None` if the
    /// body was not read, or has a number of answers that is no whole number.
    pub(crate) limited_answers: Option<u64>,
    /// The most answers that the body asks for: to each of its inputs as many as it wants. At least 1 if it was read.
    pub(crate) answers: u64,
    /// A number of answers that is no whole number, so that the provider may read another one.
    pub(crate) unread_count: Option<&'static str>,
    /// The characters of `input`, if it is a text: what is to be spoken. `None` until
    /// [`RequestedOptions::read_input_characters`] counts them.
    pub(crate) input_characters: Option<u64>,
    /// Whether the body was not read because it, or an object of options in it, has more than [`MAX_MEMBERS`].
    pub(crate) has_too_many_members: bool,
}

impl RequestedOptions {
    /// The output limit of all answers together, in tokens, at a provider that reads these members.
    pub(crate) fn max_output_tokens(&self, members: &[LimitMember]) -> Option<u64> {
        let limit = match self.bedrock_limit {
            None => self.limits.read_in(members)?,
            Some(BedrockLimit::Tokens(tokens)) => tokens,
            Some(BedrockLimit::Absent | BedrockLimit::Unknown) => return None,
        };
        Some(limit.saturating_mul(self.limited_answers?))
    }

    /// Counts the characters of `input`, which matter only where they are billed. `body` is the JSON body of these options.
    pub(crate) fn read_input_characters(&mut self, body: &[u8]) {
        // A body with such an object in it is not read at all.
        if !self.has_too_many_members {
            self.input_characters = input_characters(body);
        }
    }
}

/// The characters of `input` in a JSON body, if it is a text.
fn input_characters(body: &[u8]) -> Option<u64> {
    let members = read_members(std::str::from_utf8(body).ok()?, &["input"]).ok()?;
    let input = members.known.iter().rfind(|member| member.is_exact)?;
    let text: String = serde_json::from_str(input.value.get()).ok()?;
    u64::try_from(text.chars().count()).ok()
}

/// Reads the options of a whole JSON body.
pub(crate) fn read_request(body: &[u8]) -> RequestedOptions {
    options_of(body).unwrap_or_else(|unread| RequestedOptions {
        has_too_many_members: unread == Unread::TooManyMembers,
        ..RequestedOptions::default()
    })
}

fn options_of(body: &[u8]) -> Result<RequestedOptions, Unread> {
    let body = std::str::from_utf8(body).map_err(|_| Unread::NoObject)?;
    let members = read_members(body, &KNOWN)?.known;
    let body = Given::of(&members);
    let mut inner = body.within("generationConfig", &BOUNDS)?;
    inner.extend(body.within("generation_config", &BOUNDS)?);
    let inference = body.within("inferenceConfig", &BOUNDS)?;
    let options = body.within("stream_options", &[INCLUDE_USAGE])?;
    let mut limits = OutputLimits::default();
    limits.add(LimitObject::Body, &members);
    limits.add(LimitObject::GenerationConfig, &inner);
    limits.add(LimitObject::InferenceConfig, &inference);
    let is_ambiguous = |members: &[Member<'_>]| Given::of(members).has_ambiguous();
    let first_of_body = || DECISIVE.into_iter().chain(BOUNDS).find(|name| body.is_ambiguous(name));
    let ambiguous = body
        .has_ambiguous()
        .then(first_of_body)
        .flatten()
        .or_else(|| is_ambiguous(&options).then_some("stream_options"))
        .or_else(|| is_ambiguous(&inner).then_some("generationConfig"))
        .or_else(|| is_ambiguous(&inference).then_some("inferenceConfig"));
    let mut counts = Counts::default();
    for name in COUNTS {
        if let Some(value) = body.value(name) {
            counts.add(name, value);
        }
    }
    for member in inner.iter().filter(|member| member.is_exact && COUNTS.contains(&member.name)) {
        counts.add(member.name, member.value);
    }
    let unread_count = COUNTS.into_iter().find(|name| counts.unread.contains(name));
    let counted = counts.largest.unwrap_or(1).max(1);
    let tells_usage = options.iter().any(|member| member.is_exact && member.value.get() == "true");
    let is_set = |name: &str| body.value(name).is_some_and(|value| !matches!(value.get(), "false" | "null"));
    let lists: BTreeMap<&str, List> =
        INPUTS.into_iter().filter_map(|name| Some((name, List::of(body.value(name)?)?))).collect();
    let inputs = lists.values().map(|list| list.items).max().unwrap_or(1).max(1);
    let answers = if unread_count.is_some() { u64::MAX } else { counted };
    Ok(RequestedOptions {
        model: body.value("model").and_then(|model| string(model.get())).map(without_collection),
        ambiguous,
        repeats_model: body.find("model").is_some_and(|model| model.times > 1),
        stream: match (is_set("stream"), tells_usage) {
            (false, _) => RequestedStream::None,
            (true, true) => RequestedStream::WithUsage,
            (true, false) => RequestedStream::WithoutUsage,
        },
        is_background: is_set("background"),
        limits,
        bedrock_limit: None,
        limited_answers: unread_count.is_none().then_some(counted.saturating_mul(prompts(&lists))),
        answers: answers.saturating_mul(inputs),
        unread_count,
        input_characters: None,
        has_too_many_members: false,
    })
}

/// What an object gives for each of a few names: each name that it has, once.
struct Given<'a>(Vec<(&'static str, Spellings<'a>)>);

/// The members whose names may be read as one.
#[derive(Default)]
struct Spellings<'a> {
    /// Their number.
    times: usize,
    /// The value of the last one with exactly this name.
    exact: Option<&'a RawValue>,
}

impl Spellings<'_> {
    /// Whether readers may understand them in two ways: there are several, or one that is spelled in another case, which some
    /// readers ignore.
    const fn are_ambiguous(&self) -> bool {
        self.times > 1 || self.exact.is_none()
    }
}

impl<'a> Given<'a> {
    fn of(members: &[Member<'a>]) -> Self {
        let mut by_name: Vec<(&'static str, Spellings<'a>)> =
            Vec::with_capacity(members.len().min(KNOWN.len()));
        for member in members {
            let at = by_name.iter().position(|(name, _)| *name == member.name).unwrap_or_else(|| {
                by_name.push((member.name, Spellings::default()));
                by_name.len() - 1
            });
            let (_, given) = &mut by_name[at];
            given.times += 1;
            if member.is_exact {
                given.exact = Some(member.value);
            }
        }
        Self(by_name)
    }

    fn find(&self, name: &str) -> Option<&Spellings<'a>> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, spellings)| spellings)
    }

    fn is_ambiguous(&self, name: &str) -> bool {
        self.find(name).is_some_and(Spellings::are_ambiguous)
    }

    /// Whether any of the names is ambiguous.
    fn has_ambiguous(&self) -> bool {
        self.0.iter().any(|(_, spellings)| spellings.are_ambiguous())
    }

    fn value(&self, name: &str) -> Option<&'a RawValue> {
        self.find(name)?.exact
    }

    /// The members of the object `name`; none if it is no object.
    fn within(&self, name: &str, names: &[&'static str]) -> Result<Vec<Member<'a>>, Unread> {
        match self.value(name).map(|object| read_members(object.get(), names)) {
            Some(Ok(members)) => Ok(members.known),
            Some(Err(Unread::TooManyMembers)) => Err(Unread::TooManyMembers),
            Some(Err(Unread::NoObject)) | None => Ok(Vec::new()),
        }
    }
}

/// The numbers of answers in a body.
#[derive(Default)]
struct Counts {
    largest: Option<u64>,
    /// The names of those that are no whole numbers.
    unread: BTreeSet<&'static str>,
}

impl Counts {
    fn add(&mut self, name: &'static str, value: &RawValue) {
        match (value.get(), value.get().parse()) {
            ("null", _) => {}
            (_, Ok(count)) => self.largest = self.largest.max(Some(count)),
            (_, Err(_)) => {
                self.unread.insert(name);
            }
        }
    }
}

/// A list of inputs.
#[derive(Debug, Clone, Copy, Default)]
struct List {
    items: u64,
    /// Whether a text or a list is among them.
    has_texts: bool,
}

impl List {
    fn of(value: &RawValue) -> Option<Self> {
        // Mostly it is a text, which would be read to make an error of it.
        value.get().starts_with('[').then(|| serde_json::from_str(value.get()).ok())?
    }
}

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;

        impl<'de> Visitor<'de> for Items {
            type Value = List;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List, A::Error> {
                let mut read = List::default();
                while let Some(item) = list.next_element::<&RawValue>()? {
                    read.items += 1;
                    read.has_texts |= item.get().starts_with(['"', '[']);
                }
                Ok(read)
            }
        }

        deserializer.deserialize_seq(Items)
    }
}

/// The number of prompts with answers of their own. A list of numbers is one prompt, as tokens; a list of messages is
/// one conversation.
fn prompts(lists: &BTreeMap<&str, List>) -> u64 {
    let texts = lists.get("prompt").filter(|list| list.has_texts);
    let most = texts.into_iter().chain(lists.get("requests")).map(|list| list.items).max();
    most.unwrap_or(1).max(1)
}

/// The JSON body with `stream_options.include_usage` set and every other byte unchanged; `None` if `stream_options` is
/// not an object.
pub(crate) fn requesting_usage(body: &[u8]) -> Option<Vec<u8>> {
    const ASKED: &str = r#""include_usage":true"#;
    let members = read_members(std::str::from_utf8(body).ok()?, &["stream_options"]).ok()?;
    let Some(options) = members.known.iter().find(|member| member.is_exact) else {
        let at = body.iter().position(|byte| *byte == b'{')? + 1;
        let comma = if members.count == 0 { "" } else { "," };
        let asked = format!(r#""stream_options":{{{ASKED}}}{comma}"#);
        return Some([&body[..at], asked.as_bytes(), &body[at..]].concat());
    };
    let given = options.value.get();
    let others = match given {
        "null" => Ordered(Vec::new()),
        _ => serde_json::from_str(given).ok()?,
    };
    let mut asked = format!("{{{ASKED}");
    for (name, value) in others.0.iter().filter(|(name, _)| name != INCLUDE_USAGE) {
        asked.extend([",", &serde_json::to_string(name).ok()?, ":", value.get()]);
    }
    asked.push('}');
    // The value is a part of the body.
    let at = given.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    Some([body.get(..at)?, asked.as_bytes(), body.get(at + given.len()..)?].concat())
}

/// The JSON body with `model` as its model and every other byte unchanged; `None` if it names none.
pub(crate) fn naming_model(body: &[u8], model: &str) -> Option<Vec<u8>> {
    let members = read_members(std::str::from_utf8(body).ok()?, &["model"]).ok()?;
    let given = members.known.iter().find(|member| member.is_exact)?.value.get();
    // The value is a part of the body.
    let at = given.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let named = serde_json::to_string(model).ok()?;
    Some([body.get(..at)?, named.as_bytes(), body.get(at + given.len()..)?].concat())
}

/// The JSON body without its member `name`; `None` if it is no object.
pub(crate) fn without_member(body: &[u8], name: &str) -> Option<Vec<u8>> {
    let Ordered(members) = serde_json::from_slice(body).ok()?;
    let kept = members.iter().filter(|(given, _)| given != name);
    let kept: Option<Vec<String>> = kept
        .map(|(given, value)| Some(format!("{}:{}", serde_json::to_string(given).ok()?, value.get())))
        .collect();
    Some(format!("{{{}}}", kept?.join(",")).into_bytes())
}

/// Removes Google's collection prefix from a model's name.
fn without_collection(model: String) -> String {
    model.strip_prefix("models/").map(str::to_owned).unwrap_or(model)
}

/// All members of a JSON object in their order, repeated ones included. One with more than [`MAX_MEMBERS`] is not read.
pub(super) struct Ordered<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Ordered<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Ordered<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    if members.len() == MAX_MEMBERS {
                        return Err(A::Error::custom("too many members"));
                    }
                    members.push(member);
                }
                Ok(Ordered(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests;
