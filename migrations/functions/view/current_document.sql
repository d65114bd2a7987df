-- For operators and dashboards: the documents that are there, with their bodies and newest events. Producers' roles use
-- get_document() and list_documents().
CREATE OR REPLACE VIEW lanekeeper.current_document AS
SELECT d.kind, d.id, v.version, v.body, v.event_type, v.message_id, v.seq, v.changed_at
FROM lanekeeper.document AS d
CROSS JOIN LATERAL (
    SELECT v.version, v.body, v.event_type, v.message_id, v.seq, v.changed_at
    FROM lanekeeper.document_version AS v WHERE v.session_id = d.session_id ORDER BY v.version DESC LIMIT 1
) AS v;
