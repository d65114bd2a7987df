-- Purpose: remember a sign-in at the dashboard by the hash of its random id. Forgets sign-ins that are over, and of this
-- token all but its newest, so that the table stays small. Indexes: sign_in_by_end, sign_in_of_token. Rows: one; at most
-- 200 are forgotten.
WITH forgotten AS (
    DELETE FROM lanekeeper.sign_in AS s USING (
        (SELECT o.hash FROM lanekeeper.sign_in AS o WHERE o.expires_at <= clock_timestamp() ORDER BY o.expires_at LIMIT 100)
        UNION
        (SELECT o.hash FROM lanekeeper.sign_in AS o WHERE o.token_id = $2 ORDER BY o.expires_at DESC OFFSET 49 LIMIT 100)
    ) AS o
    WHERE s.hash = o.hash
)
INSERT INTO lanekeeper.sign_in (hash, token_id, expires_at)
VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 s')
