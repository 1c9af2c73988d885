//! Attacks with a spend key: through the responses of the attacker's own server, its names, and the calls it leaves.

use std::future::pending;

use farthing_tests::client::Body;
use farthing_tests::codings::{MIB, br, gzip, zlib, zstd};
use farthing_tests::merchant::forward;
use farthing_tests::provider::{
    Endpoint, Gate, Provider, Step, chunk, event_stream, head, last_chunk, whole,
};
use serde_json::json;

use super::super::scene::Attacker;
use super::{Way, meant};

/// A brotli stream of a window of 16 MiB that announces 16 MiB, and gives five bytes.
const STALLED_BROTLI: &[u8] = b"\xcf\xff\xff\xff{\"a\":";

pub(super) fn all(attacker: &Attacker) -> Vec<Way> {
    vec![
        bombs(attacker),
        reports(attacker),
        stalled(attacker),
        names(attacker),
        interim(attacker),
        small_chunks(attacker),
        leaving(attacker, attacker.managed, "leaving_managed"),
        leaving(attacker, attacker.server, "leaving"),
        slow_readers(attacker),
        held_calls(attacker),
        answers(attacker),
    ]
}

fn packed(server: &Provider, coding: &'static str, body: Vec<u8>, end: Vec<Step>) -> Endpoint {
    server.endpoint(move |_| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Content-Encoding", coding),
            ("Transfer-Encoding", "chunked"),
        ];
        [vec![head(200, &headers), chunk(&body)], end.clone()].concat()
    })
}

/// F1: small responses that are long once decompressed, in all codings.
fn bombs(attacker: &Attacker) -> Way {
    let mut urls = Vec::new();
    for unit in [r#"{"usage":1}"#, r#"{"id":"x"}"#, " "] {
        let text = unit.repeat(60 * MIB / unit.len()).into_bytes();
        for (coding, bomb) in
            [("br", br(&text)), ("gzip", gzip(&text)), ("deflate", zlib(&text)), ("zstd", zstd(&text))]
        {
            urls.push(packed(attacker.server, coding, bomb, vec![last_chunk()]).url);
        }
    }
    let attacker = attacker.clone();
    Way::new("bombs", 20, move |number| {
        let (attacker, url) = (attacker.clone(), urls[index(number, urls.len())].clone());
        async move {
            let response = attacker.send(&forward("GET", &url).bearer(&attacker.spend_key)).await?;
            meant(response.status == 200)
        }
    })
}

/// F1: thousands of reports of usage in one stream, believed and not.
fn reports(attacker: &Attacker) -> Way {
    let report = [r#"{"usage":{"tokens":3}}"#, r#"{"usage":1}"#, r#"{"usage":null,"x":"usage"}"#];
    let urls = report.map(|report| {
        let events = format!("data: {report}\n\n").repeat(5_000);
        let respond = move |_: &_| vec![event_stream(), chunk(&events), last_chunk()];
        attacker.server.endpoint(respond).url
    });
    let attacker = attacker.clone();
    Way::new("reports", 4, move |number| {
        let (attacker, url) = (attacker.clone(), urls[index(number, urls.len())].clone());
        async move {
            let response = attacker.send(&forward("GET", &url).bearer(&attacker.spend_key)).await?;
            meant(response.status == 200)
        }
    })
}

/// F5: compressed responses that stall.
fn stalled(attacker: &Attacker) -> Way {
    let text = r#"{"id":"x"}"#.repeat(MIB).into_bytes();
    let begun = zstd(&text);
    let begun = begun[..begun.len() / 2].to_vec();
    let urls = [("br", STALLED_BROTLI.to_vec()), ("zstd", begun)]
        .map(|(coding, body)| packed(attacker.server, coding, body, vec![Step::Wait(Gate::default())]).url);
    let attacker = attacker.clone();
    Way::holding("stalled", 200, move |number| {
        let (attacker, url) = (attacker.clone(), urls[index(number, urls.len())].clone());
        async move {
            attacker.send(&forward("GET", &url).bearer(&attacker.spend_key)).await?;
            Ok(())
        }
    })
}

/// F6: names that are never answered, fail, are answered in part, or have many addresses.
fn names(attacker: &Attacker) -> Way {
    let attacker = attacker.clone();
    Way::new("names", 100, move |number| {
        let attacker = attacker.clone();
        async move {
            let kind = ["slow", "slow", "fails", "half", "many", "none"][index(number, 6)];
            let url = format!("http://{kind}{number}.test:9/");
            let response = attacker.send(&forward("GET", &url).bearer(&attacker.spend_key)).await?;
            meant(matches!(response.status, 400 | 502 | 503))
        }
    })
}

/// F14: interim responses without an end.
fn interim(attacker: &Attacker) -> Way {
    let flood = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000);
    let respond = move |_: &_| vec![Step::Bytes(flood.clone()), Step::Wait(Gate::default())];
    let url = attacker.server.endpoint(respond).url;
    let attacker = attacker.clone();
    Way::new("interim", 4, move |_| {
        let (attacker, url) = (attacker.clone(), url.clone());
        async move {
            let response = attacker.send(&forward("GET", &url).bearer(&attacker.spend_key)).await?;
            meant(response.status == 502)
        }
    })
}

/// F10: bodies in chunks of a byte, in both directions.
fn small_chunks(attacker: &Attacker) -> Way {
    const CHUNKS: usize = 8 * 1024;
    let respond = |_: &_| {
        let headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")];
        vec![head(200, &headers), Step::Bytes(b"1\r\n \r\n".repeat(CHUNKS)), last_chunk()]
    };
    let url = attacker.server.endpoint(respond).url;
    let attacker = attacker.clone();
    Way::new("small_chunks", 4, move |_| {
        let (attacker, url) = (attacker.clone(), url.clone());
        async move {
            let request =
                forward("POST", &url)
                    .bearer(&attacker.spend_key)
                    .body(Body::Chunks(vec![vec![b'1']; CHUNKS]));
            let response = attacker.send(&request).await?;
            meant(response.status == 200)
        }
    })
}

/// F8: streams that are left after their first piece, on a managed provider key or on the attacker's own server.
fn leaving(attacker: &Attacker, provider: &Provider, name: &'static str) -> Way {
    let respond = |_: &_| vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(Gate::default())];
    let url = provider.endpoint_ending("/v1/chat/completions", respond).url;
    let attacker = attacker.clone();
    Way::new(name, 8, move |_| {
        let (attacker, url) = (attacker.clone(), url.clone());
        async move {
            let asked = json!({"model": "gpt-4o", "stream": true, "max_tokens": 50, "messages": []});
            let mut connection = attacker.connect().await?;
            connection.send(&forward("POST", &url).bearer(&attacker.spend_key).json(&asked)).await?;
            let head = connection.head("POST").await?;
            connection.read.piece().await?;
            meant(head.first_line.contains(" 200 "))
        }
    })
}

/// Long responses of which nothing is read.
fn slow_readers(attacker: &Attacker) -> Way {
    let respond = |_: &_| {
        vec![head(200, &[("Content-Length", "1073741824")]), Step::Flood(1 << 30, std::sync::Arc::default())]
    };
    let url = attacker.server.endpoint(respond).url;
    let attacker = attacker.clone();
    Way::holding("slow_readers", 100, move |_| {
        let (attacker, url) = (attacker.clone(), url.clone());
        async move {
            let mut connection = attacker.connect().await?;
            connection.send(&forward("GET", &url).bearer(&attacker.spend_key)).await?;
            connection.head("GET").await?;
            pending().await
        }
    })
}

/// Calls that are never answered.
fn held_calls(attacker: &Attacker) -> Way {
    let url = attacker.server.endpoint(|_| vec![Step::Wait(Gate::default())]).url;
    let attacker = attacker.clone();
    Way::holding("held_calls", 500, move |_| {
        let (attacker, url) = (attacker.clone(), url.clone());
        async move {
            attacker.send(&forward("GET", &url).bearer(&attacker.spend_key)).await?;
            Ok(())
        }
    })
}

/// The longest answers that are stored, each under a key of its own.
fn answers(attacker: &Attacker) -> Way {
    let url = attacker.server.endpoint(|_| whole(200, &[], &vec![b'x'; 256 * 1024])).url;
    let attacker = attacker.clone();
    Way::new("answers", 16, move |number| {
        let (attacker, url) = (attacker.clone(), url.clone());
        async move {
            let call = forward("POST", &url).bearer(&attacker.spend_key);
            let response = attacker.send(&call.header("Idempotency-Key", format!("answer-{number}"))).await?;
            meant(response.status == 200)
        }
    })
}

/// The place of this number in a list of this length, in turns.
pub(super) fn index(number: u64, length: usize) -> usize {
    usize::try_from(number).unwrap_or(0) % length
}
