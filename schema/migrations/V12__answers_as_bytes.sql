-- Appends a batch as ledger.append does. The sealed answers of its claims are bytes: claim_changes has the number of each among
-- `answers`, from 1 on. As hexadecimal digits in a JSON text, which Postgres reads character by character, the answers of one
-- merchant's calls took half of Postgres's time and kept the appends of others waiting.
-- Gateways of earlier releases call ledger.append with the digits.
CREATE FUNCTION ledger.append_batch(
    of_partition smallint, expected_position bigint, expected_epoch bigint, expected_shape bigint,
    events_count integer, recorded timestamptz, by_writer text, lines bytea, chain bytea,
    fact_keys text[], fact_positions bigint[], directory_kinds text[], directory_ids text[],
    personal_changes json, claim_changes json, answers bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT ledger.append(
        of_partition, expected_position, expected_epoch, expected_shape, events_count, recorded, by_writer, lines, chain,
        fact_keys, fact_positions, directory_kinds, directory_ids, personal_changes, NULL)
    THEN
        RETURN false;
    END IF;
    IF claim_changes IS NOT NULL THEN
        INSERT INTO ledger.idempotency AS i (partition, id, fingerprint, request_id, answer)
        SELECT of_partition, c.id, c.fingerprint, c.request_id, answers[c.answer]
        FROM json_to_recordset(claim_changes -> 'put') AS c(id text, fingerprint text, request_id text, answer integer)
        ON CONFLICT (partition, id) DO UPDATE SET fingerprint = excluded.fingerprint,
            request_id = excluded.request_id, answer = excluded.answer, created_at = excluded.created_at;
        -- Citus 13 crashes on a subscript in a SET clause; OFFSET 0 keeps it in the subquery.
        UPDATE ledger.idempotency AS i SET answer = c.bytes
        FROM (
            SELECT r.id, r.request_id, answers[r.answer] AS bytes
            FROM json_to_recordset(claim_changes -> 'answered') AS r(id text, request_id text, answer integer)
            OFFSET 0) AS c
        WHERE i.partition = of_partition AND i.id = c.id AND i.request_id = c.request_id;
        DELETE FROM ledger.idempotency AS i
        USING json_to_recordset(claim_changes -> 'released') AS c(id text, request_id text)
        WHERE i.partition = of_partition AND i.id = c.id AND i.request_id = c.request_id;
    END IF;
    RETURN true;
END $$;
