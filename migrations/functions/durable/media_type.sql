-- A content type without its parameters, in small letters: by it two of them are compared.
CREATE OR REPLACE FUNCTION lanekeeper.media_type(p_content_type text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN lower(btrim(split_part(p_content_type, ';', 1)));
