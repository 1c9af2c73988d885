//! Selects requests: the conditions that lists and sums share. Invariant: every filter is answered from an index that
//! is in the order of the list.

use std::collections::BTreeMap;

use farthing_core::ids::{CustomerId, MerchantId, MeterId};
use sha2::{Digest as _, Sha256};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::column::{Jsonb, json};
use crate::query::{self, Error, Listed, Page, Parameter, PartitionClient, findable};
use crate::row::FromRow;

/// Names a pair of a merchant's metadata: half of a SHA-256 over merchant, key and value.
pub(super) type Pair = [u8; 16];

/// The digest of a pair.
pub(super) fn digest(merchant_id: MerchantId, key: &str, value: &str) -> Pair {
    let mut hash = Sha256::new();
    for part in [&merchant_id.to_string(), key, value] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let mut pair = Pair::default();
    pair.copy_from_slice(&hash.finalize()[..16]);
    pair
}

/// Selects requests; all conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestFilter {
    /// Only this customer's.
    pub connection_id: Option<CustomerId>,
    /// Only on this meter.
    pub product_id: Option<MeterId>,
    /// Only with all these key-value pairs.
    pub metadata: Vec<(String, String)>,
}

/// Selects the rarest of several pairs, from at most 1,000 rows of each. The query then reads the rows of that pair.
pub(super) const RAREST: &str = "SELECT p.n AS number FROM unnest($2::bytea[]) WITH ORDINALITY AS p(pair, n) \
     CROSS JOIN LATERAL (SELECT count(*) AS found FROM ( \
         SELECT FROM {requests}.metadata_pairs AS m WHERE m.partition = $1 AND m.pair = p.pair LIMIT 1000) AS walked) AS seen \
     ORDER BY seen.found, p.n LIMIT 1";

impl RequestFilter {
    /// The filter with its values in the form of the columns; `None` if no request can match it.
    pub(crate) async fn conditions(
        &self,
        db: PartitionClient<'_>,
        merchant_id: MerchantId,
    ) -> Result<Option<Conditions>, Error> {
        let Some(metadata) = self.metadata() else { return Ok(None) };
        let pairs: Vec<Pair> = metadata.iter().map(|(key, value)| digest(merchant_id, key, value)).collect();
        let at = match pairs.len() {
            0 | 1 => 0,
            _ => {
                let pairs: Vec<&[u8]> = pairs.iter().map(Pair::as_slice).collect();
                let rows = db.query(RAREST, &[(&pairs, Type::BYTEA_ARRAY)]).await?;
                let number: i64 = rows.first().map_or(Ok(1), |row| row.try_get("number"))?;
                usize::try_from(number - 1).unwrap_or(0)
            }
        };
        Ok(Some(Conditions {
            merchant: merchant_id.to_string(),
            connection: self.connection_id.map(|id| id.to_string()),
            product: self.product_id.map(|id| id.to_string()),
            pair: pairs.get(at).map(|pair| pair.to_vec()),
            other_pairs: pairs.len() > 1,
            metadata: Jsonb(json(&metadata)),
        }))
    }

    /// The pairs, each key once; `None` if no request can have one of them.
    fn metadata(&self) -> Option<BTreeMap<&str, &str>> {
        let mut pairs = BTreeMap::new();
        for (key, value) in &self.metadata {
            let other = pairs.insert(key.as_str(), value.as_str());
            if !findable(key) || !findable(value) || other.is_some_and(|other| other != value) {
                return None;
            }
        }
        Some(pairs)
    }
}

/// The conditions of a filter that requests can match.
pub(crate) struct Conditions {
    merchant: String,
    connection: Option<String>,
    product: Option<String>,
    /// The pair whose rows are read.
    pair: Option<Vec<u8>>,
    /// Whether there are other pairs, which are compared with the rows' metadata.
    other_pairs: bool,
    metadata: Jsonb,
}

impl Conditions {
    /// Selects `columns` of the requests, called `r`.
    pub(crate) fn select(&self, columns: &'static str) -> Query<'_> {
        let query = match &self.pair {
            None => Query::new(columns, Vec::new(), "r").from(
                " FROM {requests}.requests AS r WHERE r.partition = $1 AND r.merchant_id = {1} ",
                [(&self.merchant, Type::TEXT)],
            ),
            Some(pair) => Query::new(columns, Vec::new(), "p").from(
                " FROM {requests}.metadata_pairs AS p \
                 JOIN {requests}.requests AS r ON r.partition = p.partition AND r.request_id = p.request_id \
                 WHERE p.partition = $1 AND r.merchant_id = {1} AND p.pair = {2} AND r.metadata @> {3} ",
                [(&self.merchant, Type::TEXT), (pair, Type::BYTEA), (&self.metadata, Type::JSONB)],
            ),
        };
        self.narrowed(query)
    }

    /// Selects `sums` over the ends of the requests, called `e`; `{at}` in them is the table that has the instant of
    /// the opening. `parameters` belong to the sums and are the first of the statement. A single pair is found by its
    /// digest alone, so that a million of them do not need a million openings.
    pub(crate) fn sum<'a>(&'a self, sums: &'static str, parameters: Vec<Parameter<'a>>) -> Query<'a> {
        let query = match &self.pair {
            None => Query::new(sums, parameters, "o").from(
                " FROM {requests}.opened AS o LEFT JOIN {requests}.ended AS e ON e.partition = o.partition AND e.request_id = o.request_id \
                 WHERE o.partition = $1 AND o.merchant_id = {1} ",
                [(&self.merchant, Type::TEXT)],
            ),
            Some(pair) if !self.other_pairs => Query::new(sums, parameters, "p").from(
                " FROM {requests}.metadata_pairs AS p LEFT JOIN {requests}.ended AS e ON e.partition = p.partition AND e.request_id = p.request_id \
                 WHERE p.partition = $1 AND p.pair = {1} ",
                [(pair, Type::BYTEA)],
            ),
            Some(pair) => Query::new(sums, parameters, "p").from(
                " FROM {requests}.metadata_pairs AS p JOIN {requests}.opened AS o ON o.partition = p.partition AND o.request_id = p.request_id \
                 LEFT JOIN {requests}.ended AS e ON e.partition = p.partition AND e.request_id = p.request_id \
                 WHERE p.partition = $1 AND o.merchant_id = {1} AND p.pair = {2} AND o.metadata @> {3} ",
                [(&self.merchant, Type::TEXT), (pair, Type::BYTEA), (&self.metadata, Type::JSONB)],
            ),
        };
        self.narrowed(query)
    }

    fn narrowed<'a>(&'a self, mut query: Query<'a>) -> Query<'a> {
        if let Some(connection) = &self.connection {
            query.and("{at}.connection_id = {1}", [(connection, Type::TEXT)]);
        }
        if let Some(product) = &self.product {
            query.and("{at}.product_id = {1}", [(product, Type::TEXT)]);
        }
        query
    }
}

/// A statement that grows by conditions. In a piece of it `{1}`, `{2}` are the parameters of the piece, and `{at}` is
/// the table whose index has the order.
pub(crate) struct Query<'a> {
    sql: String,
    parameters: Vec<Parameter<'a>>,
    at: &'static str,
}

impl<'a> Query<'a> {
    /// Selects `columns`, which use `parameters`, in the order of the table called `at`.
    fn new(columns: &'static str, parameters: Vec<Parameter<'a>>, at: &'static str) -> Self {
        Self { sql: columns.replace("{at}", at), parameters, at }
    }

    /// Adds the tables and their joins.
    fn from<const N: usize>(mut self, clause: &'static str, parameters: [Parameter<'a>; N]) -> Self {
        self.add(clause, parameters);
        self
    }

    /// Adds a condition.
    pub(crate) fn and<const N: usize>(&mut self, condition: &'static str, parameters: [Parameter<'a>; N]) {
        self.sql.push_str("AND ");
        self.add(condition, parameters);
        self.sql.push(' ');
    }

    /// Adds the clause after the conditions.
    pub(crate) fn end<const N: usize>(&mut self, clause: &'static str, parameters: [Parameter<'a>; N]) {
        self.add(clause, parameters);
    }

    fn add<const N: usize>(&mut self, piece: &'static str, parameters: [Parameter<'a>; N]) {
        // Parameter $1 is the partition.
        let before = self.parameters.len() + 1;
        let piece = (1..=N).fold(piece.replace("{at}", self.at), |sql, own| {
            sql.replace(&format!("{{{own}}}"), &format!("${}", before + own))
        });
        self.sql.push_str(&piece);
        self.parameters.extend(parameters);
    }

    /// Its rows.
    pub(crate) async fn rows(&self, db: PartitionClient<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        db.query(&self.sql, &self.parameters).await
    }

    /// The page of its rows.
    pub(crate) async fn page<R: FromRow>(
        &self,
        db: PartitionClient<'_>,
        page: Page<'_>,
    ) -> Result<Listed<R>, Error> {
        query::page(db, &self.sql, &self.parameters, page).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(pairs: &[(&str, &str)]) -> RequestFilter {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        RequestFilter { metadata: pairs.iter().map(pair).collect(), ..RequestFilter::default() }
    }

    #[test]
    fn a_metadata_filter_that_no_request_can_meet_is_recognised_before_the_query() {
        assert_eq!(filter(&[]).metadata(), Some(BTreeMap::new()));
        let pairs = filter(&[("b", "\""), ("a", "1"), ("a", "1")]);
        assert_eq!(pairs.metadata(), Some(BTreeMap::from([("a", "1"), ("b", "\"")])));
        assert_eq!(filter(&[("a", "1"), ("a", "2")]).metadata(), None);
        assert_eq!(filter(&[("a", "\0")]).metadata(), None);
    }

    #[test]
    fn conditions_number_their_parameters_consecutively() {
        let (one, two) = (1_i64, 2_i64);
        let mut query = Query { sql: String::new(), parameters: vec![(&one, Type::INT8)], at: "p" };
        query.and("a = {1}", [(&one, Type::INT8)]);
        query.and("({at}.b, c) < ({1}, {2})", [(&one, Type::INT8), (&two, Type::INT8)]);
        assert_eq!(query.sql, "AND a = $3 AND (p.b, c) < ($4, $5) ");
    }

    #[test]
    fn every_pair_has_a_digest_of_its_own() {
        let merchants = ["mer_01ARZ3NDEKTSV4RRFFQ69G5FAV", "mer_01ARZ3NDEKTSV4RRFFQ69G5FAW"];
        let [one, other] = merchants.map(|id| id.parse().unwrap());
        let pairs = [
            digest(one, "a", "bc"),
            digest(one, "ab", "c"),
            digest(one, "bc", "a"),
            digest(other, "a", "bc"),
        ];
        for (at, pair) in pairs.iter().enumerate() {
            assert!(!pairs[..at].contains(pair), "{at}");
        }
    }
}
