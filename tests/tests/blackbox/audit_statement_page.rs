//! `farthing audit statement --format html`: a page to print that adds up and needs nothing else. Names and reasons are
//! escaped.

use std::process::Stdio;

use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use rust_decimal::Decimal;

const HOSTILE: &str = r#"<script>alert(1)</script> & "it's" </table><img src=x onerror=alert(2)>"#;

async fn page(instance: &Instance, wallet: &str, more: &[&str]) -> (String, Option<i32>) {
    let mut command = tokio::process::Command::new(program());
    command.args(["audit", "statement", "--wallet", wallet, "--format", "html"]).args(more);
    command.args(["--database-url", &instance.ready().database_url]);
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

/// The texts of the cells of each row of the table's body.
fn rows(page: &str) -> Vec<Vec<String>> {
    let body = page.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let cells = |row: &str| {
        let cells = row.split("<td").skip(1);
        cells.map(|cell| cell.split_once('>').unwrap().1.split("</td>").next().unwrap().to_owned()).collect()
    };
    body.split("<tr").skip(1).map(cells).collect()
}

#[test]
fn the_page_of_a_statement_adds_up_and_escapes_names_and_reasons() {
    run(async {
        let merchant = Merchant::new().await;
        let instance = merchant.instance;
        let mut sum = Decimal::ZERO;
        for (amount, reason) in
            [("12.5", HOSTILE), ("0.0000000001", "a small one"), ("100", "&lt;escaped&gt;")]
        {
            let target =
                ["wallet", "credit", "--merchant", &merchant.id, "--amount", amount, "--reason", reason];
            instance.operate(&target).await;
            sum += amount.parse::<Decimal>().unwrap();
        }
        let (html, code) = page(instance, &merchant.wallet_id, &["--for", HOSTILE]).await;
        assert_eq!(code, Some(0), "{html}");
        for forbidden in ["<script", "<img", "src=", "href=", "url(", "@import"] {
            let text = html.replace("src=x onerror", "");
            assert!(!text.contains(forbidden), "{forbidden}: {html}");
        }
        assert_eq!(
            html.matches("&#60;script&#62;alert(1)&#60;/script&#62; &#38; &#34;it&#39;s&#34;").count(),
            3
        );
        assert!(html.contains("&#38;lt;escaped&#38;gt;"), "{html}");
        for part in ["display: table-header-group", "break-inside: avoid", "@page", "default-src 'none'"] {
            assert!(html.contains(part), "{part}");
        }
        let rows = rows(&html);
        let [first, .., last] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((first[1].as_str(), last[1].as_str(), rows.len()), ("opening", "closing", 5));
        let amount = |text: &String| text.parse::<Decimal>().unwrap();
        let mut balance = amount(&first[4]);
        for row in &rows[1..4] {
            balance += amount(&row[3]);
            assert_eq!(amount(&row[4]), balance, "{row:?}");
        }
        assert_eq!((amount(&last[4]), balance), (sum, sum));
        assert!(html.contains("<dt>Added</dt><dd>112.5000000001</dd>"), "{html}");

        let (empty, code) = page(instance, &merchant.wallet_id, &["--to", "2020-01-01"]).await;
        assert_eq!((code, self::rows(&empty).len()), (Some(0), 2), "{empty}");
        let (nothing, code) = page(instance, "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV", &[]).await;
        assert_eq!((nothing.as_str(), code), ("", Some(2)));
    });
}
