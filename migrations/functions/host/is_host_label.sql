-- Whether a text may name a host: 1 to 255 bytes without spaces, control characters and slashes.
CREATE OR REPLACE FUNCTION lanekeeper.is_host_label(p_label text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN octet_length(p_label) BETWEEN 1 AND 255 AND p_label !~ '[[:cntrl:][:space:]/]';
