//! Names the images and sound of a request in any provider's format, so that a client sees what arrived.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::Value;

use super::answer::text_at;

/// The text that names them, in the order of the request.
pub(super) fn description(body: &[u8]) -> String {
    let mut found = Vec::new();
    find(&serde_json::from_slice(body).unwrap_or_default(), &mut found);
    let named = if found.is_empty() { "no image and no sound".to_owned() } else { found.join(", ") };
    format!("The mock provider got {named}.")
}

fn find(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| find(value, found)),
        Value::Object(members) => match part(value) {
            Some(media) => found.push(media),
            None => members.values().for_each(|value| find(value, found)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The image or sound that this part is.
fn part(value: &Value) -> Option<String> {
    let given = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    match text_at(value, "/type") {
        "image_url" => return given("/image_url/url").or_else(|| given("/image_url")).map(of_url),
        "input_image" => return given("/image_url").map(of_url),
        "input_audio" => {
            let kind = format!("audio/{}", text_at(value, "/input_audio/format"));
            return given("/input_audio/data").map(|data| of_base64(&kind, data));
        }
        "image" => {
            let data =
                given("/source/data").map(|data| of_base64(text_at(value, "/source/media_type"), data));
            return data.or_else(|| given("/source/url").map(str::to_owned));
        }
        _ => {}
    }
    // Bedrock's.
    if let Some(image) = value.get("image") {
        let kind = format!("image/{}", text_at(image, "/format"));
        return image.pointer("/source/bytes").and_then(Value::as_str).map(|data| of_base64(&kind, data));
    }
    // Google's Python package writes some names in camel case, and those within them not.
    let data = |name: &str, snake: &str| value.get(name).or_else(|| value.get(snake));
    let inner = |data: &'_ Value, name: &str, snake: &str| {
        data.get(name).or_else(|| data.get(snake)).and_then(Value::as_str).map(str::to_owned)
    };
    if let Some(file) = data("fileData", "file_data") {
        return inner(file, "fileUri", "file_uri");
    }
    let inline = data("inlineData", "inline_data")?;
    let kind = inner(inline, "mimeType", "mime_type").unwrap_or_default();
    inner(inline, "data", "data").map(|data| of_base64(&kind, &data))
}

/// A URL, or what a data URL has in base64.
fn of_url(url: &str) -> String {
    let inline = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    inline.map_or_else(|| url.to_owned(), |(kind, data)| of_base64(kind, data))
}

/// Google's Python package writes the alphabet of URLs.
fn of_base64(kind: &str, data: &str) -> String {
    match STANDARD.decode(data).or_else(|_| URL_SAFE.decode(data)) {
        Ok(bytes) => format!("{kind} of {} bytes", bytes.len()),
        Err(_) => format!("{kind} in invalid base64"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_and_sound_are_named_in_every_format() {
        for (part, named) in [
            (
                json!({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}),
                "https://a.example/b.png",
            ),
            (
                json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
                "image/png of 3 bytes",
            ),
            (
                json!({"type": "input_image", "image_url": "data:image/png;base64,AA"}),
                "image/png in invalid base64",
            ),
            (
                json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
                "audio/wav of 3 bytes",
            ),
            (
                json!({"type": "image", "source": {"type": "url", "url": "https://a.example/"}}),
                "https://a.example/",
            ),
            (
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "AAAA"}}),
                "image/gif of 3 bytes",
            ),
            (
                json!({"fileData": {"fileUri": "https://a.example/", "mimeType": "image/png"}}),
                "https://a.example/",
            ),
            (json!({"inlineData": {"mimeType": "audio/wav", "data": "__--"}}), "audio/wav of 3 bytes"),
            (json!({"inline_data": {"mime_type": "audio/wav", "data": "AAAA"}}), "audio/wav of 3 bytes"),
            (
                json!({"fileData": {"file_uri": "https://a.example/", "mime_type": "image/png"}}),
                "https://a.example/",
            ),
            (json!({"inlineData": {"mime_type": "audio/wav", "data": "AAAA"}}), "audio/wav of 3 bytes"),
            (json!({"image": {"format": "png", "source": {"bytes": "AAAA"}}}), "image/png of 3 bytes"),
            (json!({"type": "text", "text": "data:image/png;base64,AAAA"}), "no image and no sound"),
        ] {
            let body = json!({"messages": [{"role": "user", "content": [part]}]}).to_string();
            assert_eq!(description(body.as_bytes()), format!("The mock provider got {named}."), "{body}");
        }
    }
}
