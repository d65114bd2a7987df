-- The role that calls a SECURITY DEFINER function: that of SET ROLE, or else the one that logged in. current_user is the
-- function's owner there. Nobody can pretend to be a role that he is no member of. A function of the caller's own that is
-- SECURITY DEFINER itself changes nothing here: streams are granted to the role of the session. Inlined.
CREATE OR REPLACE FUNCTION lanekeeper.calling_role() RETURNS text
LANGUAGE sql STABLE PARALLEL RESTRICTED
RETURN CASE WHEN current_setting('role') = 'none' THEN session_user::text ELSE current_setting('role') END;
