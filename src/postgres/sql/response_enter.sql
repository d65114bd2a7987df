-- Purpose: enter where the answers to requests are, for those who wait; the first answer counts, and only that of a peer whom
-- the request was sent to. Indexes: awaited_response's primary key, stream's and session's unique names. Rows: those of a
-- batch, 50 at most, each for every stream that waits for that answer.
UPDATE lanekeeper.awaited_response AS a SET session_id = n.session_id, seq = u.seq
FROM unnest($1::uuid[], $2::bigint[]) AS u (request_id, seq), lanekeeper.stream AS t, lanekeeper.session AS n
WHERE a.request_id = u.request_id AND a.seq IS NULL AND t.name = $3 AND n.stream_id = t.stream_id AND n.name = $4
  AND EXISTS (
      SELECT FROM lanekeeper.subscription AS s
      WHERE s.stream_id = a.stream_id AND s.adapter = 'agent' AND s.removed_at IS NULL
        AND ($5::text IS NULL OR s.settings ->> 'peer' = $5))
