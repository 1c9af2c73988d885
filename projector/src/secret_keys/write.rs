//! Writes the rows of secret keys.

use farthing_core::partition::Partition;

use super::SecretKeyBatch;
use super::fold::{NewSecretKey, RevokedSecretKey};
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT, insert<'a>,
    into secret_keys,
    for row in &'a NewSecretKey => {
        secret_key_id: text = row.secret_key_id.to_string(),
        merchant_id: text = row.merchant_id.to_string(),
        name: text = row.name,
        hint: text = row.hint,
        created_at: timestamptz = row.created_at,
    }
}

unnest_rows! {
    REVOKE, revoke<'a>,
    ["UPDATE {schema}.secret_keys AS k SET revoked_at = revoked.revoked_at \
      FROM " (rows as revoked) " WHERE k.partition = revoked.partition AND k.secret_key_id = revoked.secret_key_id COLLATE \"C\""],
    for row in &'a RevokedSecretKey => {
        secret_key_id: text = row.secret_key_id.to_string(),
        revoked_at: timestamptz = row.revoked_at,
    }
}

impl WriteRows for SecretKeyBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert(db, batches, |batch| batch.new.iter()).await?;
        revoke(db, batches, |batch| batch.revoked.iter()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_lists_its_declared_columns() {
        let columns = "partition, secret_key_id, merchant_id, name, hint, created_at";
        assert_eq!(INSERT, format!("COPY {{schema}}.secret_keys ({columns}) FROM STDIN BINARY"));
        assert_eq!(
            REVOKE,
            "UPDATE {schema}.secret_keys AS k SET revoked_at = revoked.revoked_at \
             FROM unnest($1::int2[], $2::text[], $3::timestamptz[]) AS revoked(partition, secret_key_id, revoked_at) \
             WHERE k.partition = revoked.partition AND k.secret_key_id = revoked.secret_key_id COLLATE \"C\""
        );
    }
}
