//! Reads the options of a `multipart/form-data` body, in which sound is sent to be transcribed: its model and the format of
//! the answer. It reads plain forms only: whatever readers could understand in two ways makes the form unreadable. Pure.

use super::any_case::is_read_as;
use super::request::RequestedOptions;

/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// The longest value that is read, in bytes.
const MAX_VALUE: usize = 1024;

/// The fields that decide the price of a call and the reporting of its usage.
const DECISIVE: [&str; 3] = ["model", "response_format", "stream"];

/// How much of a form is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormExtent {
    /// All of it.
    Whole,
    /// Its beginning. The fields that end in it are read.
    Beginning,
}

/// The options of a form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FormOptions {
    /// The model, and a decisive field that is repeated or spelled in another case.
    pub(crate) options: RequestedOptions,
    /// Whether the answer is text alone, without the length of the sound.
    pub(crate) hides_duration: bool,
}

/// Reads a form; `None` if the body is no form or cannot be read.
pub(crate) fn read_form(content_type: &str, body: &[u8], extent: FormExtent) -> Option<FormOptions> {
    let boundary = boundary(content_type)?;
    let mut rest = body.strip_prefix(format!("--{boundary}\r\n").as_bytes())?;
    let delimiter = format!("\r\n--{boundary}");
    let mut fields: Vec<(String, &[u8])> = Vec::new();
    loop {
        let Some(end) = find(rest, delimiter.as_bytes()) else {
            match extent {
                FormExtent::Whole => return None,
                FormExtent::Beginning => break,
            }
        };
        let (part, after) = (&rest[..end], &rest[end + delimiter.len()..]);
        match read_part(part)? {
            FormPart::Field(name, value) => fields.push((name, value)),
            FormPart::File => {}
        }
        match after {
            [b'\r', b'\n', more @ ..] => rest = more,
            [b'-', b'-'] | [b'-', b'-', b'\r', b'\n'] => break,
            _ => match extent {
                FormExtent::Whole => return None,
                FormExtent::Beginning => break,
            },
        }
    }
    let given = |name: &str| fields.iter().filter(|(given, _)| is_read_as(given, name)).count();
    let value = |name: &str| {
        let (_, value) = fields.iter().rfind(|(given, _)| given == name)?;
        std::str::from_utf8(value).ok().filter(|value| !value.is_empty() && value.len() <= MAX_VALUE)
    };
    let is_ambiguous = |name: &&str| {
        given(name) > 1 || fields.iter().any(|(given, _)| is_read_as(given, name) && given != name)
    };
    let options = RequestedOptions {
        model: value("model").filter(|model| !model.chars().any(char::is_control)).map(str::to_owned),
        ambiguous: DECISIVE.into_iter().find(is_ambiguous),
        repeats_model: given("model") > 1,
        answers: 1,
        limited_answers: Some(1),
        ..RequestedOptions::default()
    };
    let format = given("response_format") > 0;
    let hides_duration =
        format && !value("response_format").is_some_and(|format| matches!(format, "json" | "verbose_json"));
    Some(FormOptions { options, hides_duration })
}

/// The boundary of a form.
fn boundary(content_type: &str) -> Option<&str> {
    let (media_type, parameters) = content_type.split_once(';')?;
    if !media_type.trim().eq_ignore_ascii_case("multipart/form-data") || parameters.contains(';') {
        return None;
    }
    let (name, value) = parameters.trim().split_once('=')?;
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&byte);
    let is_boundary = (1..=MAX_BOUNDARY).contains(&value.len()) && value.bytes().all(is_plain);
    (name.eq_ignore_ascii_case("boundary") && is_boundary).then_some(value)
}

/// A part of a form.
enum FormPart<'a> {
    /// A field with its value.
    Field(String, &'a [u8]),
    /// A file, whose content means nothing here.
    File,
}

/// Reads a part; `None` if it cannot be read.
fn read_part(part: &[u8]) -> Option<FormPart<'_>> {
    let end = find(part, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&part[..end]).ok()?;
    let mut dispositions = Vec::new();
    for line in head.split("\r\n") {
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "content-disposition" => dispositions.push(value.trim()),
            "content-type" => {}
            // An encoding of the value, or a header that no form has.
            _ => return None,
        }
    }
    let [disposition] = dispositions.as_slice() else { return None };
    let mut parameters = disposition.strip_prefix("form-data")?;
    let (mut name, mut is_file) = (None, false);
    while !parameters.is_empty() {
        let (key, rest) = parameters.strip_prefix(';')?.trim_start().split_once("=\"")?;
        let (value, rest) = rest.split_once('"')?;
        if value.contains(['\\', '%']) {
            return None;
        }
        match key {
            "name" if name.is_none() => name = Some(value.to_owned()),
            "filename" if !is_file => is_file = true,
            _ => return None,
        }
        parameters = rest.trim_start();
    }
    let name = name?;
    // A file under a decisive name could be read for the value.
    let is_decisive = DECISIVE.iter().any(|known| is_read_as(&name, known));
    match (is_file, is_decisive) {
        (true, true) => None,
        (true, false) => Some(FormPart::File),
        (false, _) => Some(FormPart::Field(name, &part[end + 4..])),
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=b1";

    fn form(parts: &[(&str, &str)]) -> Vec<u8> {
        let parts = parts.iter().map(|(head, value)| format!("--b1\r\n{head}\r\n\r\n{value}\r\n"));
        format!("{}--b1--\r\n", parts.collect::<String>()).into_bytes()
    }

    fn named(name: &str) -> String {
        format!("Content-Disposition: form-data; name=\"{name}\"")
    }

    fn read(parts: &[(&str, &str)]) -> Option<FormOptions> {
        read_form(TYPE, &form(parts), FormExtent::Whole)
    }

    #[test]
    fn the_model_and_the_format_of_the_answer_are_read() {
        let file =
            "content-disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\nContent-Type: audio/mpeg";
        let (model, format) = (named("model"), named("response_format"));
        for (answer, hides_duration) in
            [("json", false), ("verbose_json", false), ("text", true), ("srt", true)]
        {
            let found = read(&[(file, "ID3--b1"), (&model, "whisper-1"), (&format, answer)]).unwrap();
            assert_eq!(found.options.model.as_deref(), Some("whisper-1"));
            assert_eq!((found.options.ambiguous, found.hides_duration), (None, hides_duration), "{answer}");
        }
        let quoted = "multipart/form-data; boundary=\"b1\"";
        assert!(read_form(quoted, &form(&[(&model, "m")]), FormExtent::Whole).is_some());
    }

    #[test]
    fn a_field_that_is_repeated_or_spelled_otherwise_is_ambiguous() {
        let (model, other) = (named("model"), named("Model"));
        for (parts, ambiguous, repeats_model) in [
            (vec![(model.as_str(), "a"), (&model, "b")], Some("model"), true),
            (vec![(&model, "a"), (&other, "b")], Some("model"), true),
            (vec![(&other, "b")], Some("model"), false),
        ] {
            let options = read(&parts).unwrap().options;
            assert_eq!((options.ambiguous, options.repeats_model), (ambiguous, repeats_model), "{parts:?}");
        }
    }

    #[test]
    fn a_form_that_readers_could_understand_in_two_ways_is_not_read() {
        let model = named("model");
        for head in [
            "Content-Disposition: form-data; name=\"mo\\del\"",
            "Content-Disposition: form-data; name=\"mod%65l\"",
            "Content-Disposition: form-data; name*=utf-8''model",
            "Content-Disposition: form-data; name=model",
            "Content-Disposition: form-data; name=\"a\"; name=\"model\"",
            "Content-Disposition: form-data; name=\"model\"; filename=\"x\"",
            "Content-Disposition: attachment; name=\"model\"",
            "Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"model\"",
            "Content-Disposition: form-data; name=\"model\"\r\nContent-Transfer-Encoding: base64",
            "X: y",
            "",
        ] {
            assert_eq!(read(&[(head, "m"), (&model, "n")]), None, "{head}");
        }
        let whole = form(&[(&model, "m")]);
        for content_type in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=b1; boundary=b2",
            "multipart/mixed; boundary=b1",
            "application/json",
        ] {
            assert_eq!(read_form(content_type, &whole, FormExtent::Whole), None, "{content_type}");
        }
        for body in [
            [b"preamble\r\n", whole.as_slice()].concat(),
            [whole.as_slice(), b"--b1\r\n"].concat(),
            whole[..whole.len() - 4].to_vec(),
        ] {
            assert_eq!(read_form(TYPE, &body, FormExtent::Whole), None, "{}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn the_fields_of_a_beginning_are_read_as_far_as_they_end_in_it() {
        let whole = form(&[(&named("model"), "whisper-1"), (&named("language"), "en")]);
        for end in 0..whole.len() {
            let found = read_form(TYPE, &whole[..end], FormExtent::Beginning);
            let model = found.and_then(|found| found.options.model);
            assert!(model.as_deref().is_none_or(|model| model == "whisper-1"), "{end}: {model:?}");
        }
        let found = read_form(TYPE, &whole[..whole.len() - 20], FormExtent::Beginning).unwrap();
        assert_eq!(found.options.model.as_deref(), Some("whisper-1"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(
            tokens in prop::collection::vec(prop_oneof![
                Just(b"--b1".to_vec()), Just(b"\r\n".to_vec()), Just(b"--".to_vec()),
                Just(b"Content-Disposition: form-data; name=\"model\"".to_vec()),
                any::<[u8; 3]>().prop_map(Vec::from),
            ], 0..30),
        ) {
            let body = tokens.concat();
            for extent in [FormExtent::Whole, FormExtent::Beginning] {
                let _ = read_form(TYPE, &body, extent);
            }
        }

        #[test]
        fn a_plain_form_is_read_as_it_was_written(values in prop::collection::vec("[a-z0-9.-]{1,12}", 1..4)) {
            let heads: Vec<String> = (0..values.len()).map(|at| named(&format!("f{at}"))).collect();
            let mut parts: Vec<(&str, &str)> =
                heads.iter().map(String::as_str).zip(values.iter().map(String::as_str)).collect();
            let model = named("model");
            parts.push((&model, &values[0]));
            let found = read(&parts).unwrap();
            prop_assert_eq!(found.options.model.as_deref(), Some(values[0].as_str()));
        }
    }
}
