-- Finds the first place where a JSON value does not match a schema: a pointer to it (RFC 6901), the keyword that is not met,
-- and what it asks for. `keyword` is NULL for a value that matches, and `limit` for one that cannot be checked within the
-- bounds below. The schema is in the form that `apply` makes of it: without annotations, `pattern` in PostgreSQL's dialect,
-- and the targets of `$ref` aside, in p_refs, by their reference.
--
-- Keywords: docs/schemas.md. Those that all have to hold (properties, items, allOf, $ref …) are put on a list of what is still
-- to be checked, so however deep a value is, no stack grows with it. Only those that need a yes or no (anyOf, oneOf, not, if,
-- contains) call this function again, with the pointer left aside.
--
-- Bound: p_steps schemas in all, which are counted down through all calls (a character of a string with a `pattern` counts for
-- a 1,024th, a name for each pattern that it is compared with); p_calls calls inside each other.
--
-- A statement of its own costs more than all else here, so what is usual needs none: `required` and `names`, those of
-- `properties`, are text arrays as PostgreSQL writes them, and `only_type` says of a schema that it has nothing but `type`,
-- which is judged where it stands.
CREATE OR REPLACE FUNCTION lanekeeper.schema_violation(
    IN p_refs jsonb, IN p_schema jsonb, IN p_value jsonb, IN p_calls int, INOUT p_steps int,
    OUT pointer text, OUT keyword text, OUT reason text
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    -- What is still to be checked: a schema, and a value, which stands at a place.
    v_schemas  jsonb[] := ARRAY[p_schema];
    v_values   jsonb[] := ARRAY[p_value];
    v_at       int[] := ARRAY[0];
    v_left     int := 1;
    -- The places so far: their names, and the places that they are in. 0 is the value itself.
    v_names    text[] := '{}';
    v_parents  int[] := '{}';
    v_places   int := 0;
    v_place    int;
    v_schema   jsonb;
    v_value    jsonb;
    v_type     text;
    v_rule     jsonb;
    v_other    jsonb;
    v_number   numeric;
    v_text     text;
    v_key      text;
    v_sub      jsonb;
    v_child    jsonb;
    v_ord      bigint;
    v_count    bigint;
    v_inner    record;
BEGIN
    WHILE v_left > 0 LOOP
        v_schema := v_schemas[v_left];
        v_value := v_values[v_left];
        v_place := v_at[v_left];
        v_left := v_left - 1;
        p_steps := p_steps - 1;
        IF p_steps < 0 OR v_left > p_steps THEN
            keyword := 'limit';
            reason := 'checking it takes too many steps';
            EXIT;
        END IF;
        CONTINUE WHEN v_schema = 'true';
        IF v_schema = 'false' THEN
            keyword := 'false';
            reason := 'nothing is allowed here';
            EXIT;
        END IF;
        v_type := jsonb_typeof(v_value);
        v_number := CASE WHEN v_type = 'number' THEN v_value::numeric END;
        v_rule := v_schema -> 'type';
        IF v_rule IS NOT NULL AND NOT v_rule ? v_type
           AND NOT (v_type = 'number' AND v_rule ? 'integer' AND v_number = trunc(v_number)) THEN
            keyword := 'type';
            reason := format('%s is asked for', v_rule);
            EXIT;
        END IF;

        IF v_schema ?| '{enum,const,$ref,allOf,anyOf,oneOf,not,if}' THEN
            v_rule := v_schema -> 'enum';
            -- An array contains a scalar that is one of its elements.
            IF v_rule IS NOT NULL AND NOT (v_type NOT IN ('object', 'array') AND v_rule @> v_value) THEN
                IF v_type NOT IN ('object', 'array') OR NOT EXISTS (
                    SELECT FROM jsonb_array_elements(v_rule) AS e (e) WHERE e.e = v_value)
                THEN
                    keyword := 'enum';
                    reason := 'one of the listed values is asked for';
                    EXIT;
                END IF;
            END IF;
            IF v_schema -> 'const' <> v_value THEN
                keyword := 'const';
                reason := 'another value is asked for';
                EXIT;
            END IF;
            v_rule := v_schema -> '$ref';
            IF v_rule IS NOT NULL THEN
                v_left := v_left + 1;
                v_schemas[v_left] := p_refs -> (v_rule #>> '{}');
                v_values[v_left] := v_value;
                v_at[v_left] := v_place;
                -- It was there when `apply` read it.
                IF v_schemas[v_left] IS NULL THEN
                    keyword := '$ref';
                    reason := 'the schema is not as apply makes it';
                    EXIT;
                END IF;
            END IF;
            IF v_schema ? 'allOf' THEN
                FOR v_sub IN SELECT e.e FROM jsonb_array_elements(v_schema -> 'allOf') AS e (e) LOOP
                    v_left := v_left + 1;
                    v_schemas[v_left] := v_sub;
                    v_values[v_left] := v_value;
                    v_at[v_left] := v_place;
                END LOOP;
            END IF;
            IF v_schema ?| '{anyOf,oneOf,not,if}' THEN
                IF p_calls <= 0 THEN
                    keyword := 'limit';
                    reason := 'it is nested too deep under anyOf, oneOf, not, if or contains';
                    EXIT;
                END IF;
                IF v_schema ? 'anyOf' THEN
                    keyword := 'anyOf';
                    FOR v_sub IN SELECT e.e FROM jsonb_array_elements(v_schema -> 'anyOf') AS e (e) LOOP
                        SELECT v.p_steps, v.keyword, v.reason INTO v_inner
                        FROM lanekeeper.schema_violation(p_refs, v_sub, v_value, p_calls - 1, p_steps) AS v;
                        p_steps := v_inner.p_steps;
                        keyword := CASE WHEN v_inner.keyword IS NULL OR v_inner.keyword = 'limit' THEN v_inner.keyword ELSE 'anyOf' END;
                        EXIT WHEN keyword IS DISTINCT FROM 'anyOf';
                    END LOOP;
                    reason := CASE WHEN keyword = 'limit' THEN v_inner.reason ELSE 'none of the schemas matches' END;
                    EXIT WHEN keyword IS NOT NULL;
                END IF;
                IF v_schema ? 'oneOf' THEN
                    v_count := 0;
                    FOR v_sub IN SELECT e.e FROM jsonb_array_elements(v_schema -> 'oneOf') AS e (e) LOOP
                        SELECT v.p_steps, v.keyword, v.reason INTO v_inner
                        FROM lanekeeper.schema_violation(p_refs, v_sub, v_value, p_calls - 1, p_steps) AS v;
                        p_steps := v_inner.p_steps;
                        keyword := CASE WHEN v_inner.keyword = 'limit' THEN 'limit' END;
                        v_count := v_count + (v_inner.keyword IS NULL)::int;
                        EXIT WHEN keyword IS NOT NULL OR v_count > 1;
                    END LOOP;
                    reason := v_inner.reason;
                    IF keyword IS NULL AND v_count <> 1 THEN
                        keyword := 'oneOf';
                        reason := CASE v_count WHEN 0 THEN 'none of the schemas matches' ELSE 'more than one of the schemas matches' END;
                    END IF;
                    EXIT WHEN keyword IS NOT NULL;
                END IF;
                IF v_schema ? 'not' THEN
                    SELECT v.p_steps, v.keyword, v.reason INTO v_inner
                    FROM lanekeeper.schema_violation(p_refs, v_schema -> 'not', v_value, p_calls - 1, p_steps) AS v;
                    p_steps := v_inner.p_steps;
                    keyword := CASE WHEN v_inner.keyword IS NULL THEN 'not' WHEN v_inner.keyword = 'limit' THEN 'limit' END;
                    reason := coalesce(v_inner.reason, 'the schema that must not match does');
                    EXIT WHEN keyword IS NOT NULL;
                END IF;
                IF v_schema ? 'if' THEN
                    SELECT v.p_steps, v.keyword, v.reason INTO v_inner
                    FROM lanekeeper.schema_violation(p_refs, v_schema -> 'if', v_value, p_calls - 1, p_steps) AS v;
                    p_steps := v_inner.p_steps;
                    keyword := CASE WHEN v_inner.keyword = 'limit' THEN 'limit' END;
                    reason := v_inner.reason;
                    EXIT WHEN keyword IS NOT NULL;
                    v_sub := v_schema -> CASE WHEN v_inner.keyword IS NULL THEN 'then' ELSE 'else' END;
                    IF v_sub IS NOT NULL THEN
                        v_left := v_left + 1;
                        v_schemas[v_left] := v_sub;
                        v_values[v_left] := v_value;
                        v_at[v_left] := v_place;
                    END IF;
                END IF;
            END IF;
        END IF;

        IF v_type = 'string' THEN
            IF v_schema ?| '{minLength,maxLength,pattern}' THEN
                v_text := v_value #>> '{}';
                IF length(v_text) < (v_schema -> 'minLength')::numeric THEN
                    keyword := 'minLength';
                    reason := format('%s or more characters are asked for', v_schema -> keyword);
                    EXIT;
                END IF;
                IF length(v_text) > (v_schema -> 'maxLength')::numeric THEN
                    keyword := 'maxLength';
                    reason := format('at most %s characters are asked for', v_schema -> keyword);
                    EXIT;
                END IF;
                IF v_schema ? 'pattern' THEN
                    p_steps := p_steps - octet_length(v_text) / 1024;
                    IF p_steps >= 0 AND v_text COLLATE "C" !~ (v_schema ->> 'pattern') THEN
                        keyword := 'pattern';
                        reason := 'the pattern does not match';
                        EXIT;
                    END IF;
                END IF;
            END IF;
        ELSIF v_type = 'number' THEN
            IF v_schema ?| '{minimum,maximum,exclusiveMinimum,exclusiveMaximum,multipleOf}' THEN
                keyword := CASE
                    WHEN v_number < (v_schema -> 'minimum')::numeric THEN 'minimum'
                    WHEN v_number > (v_schema -> 'maximum')::numeric THEN 'maximum'
                    WHEN v_number <= (v_schema -> 'exclusiveMinimum')::numeric THEN 'exclusiveMinimum'
                    WHEN v_number >= (v_schema -> 'exclusiveMaximum')::numeric THEN 'exclusiveMaximum'
                    WHEN v_number % (v_schema -> 'multipleOf')::numeric <> 0 THEN 'multipleOf' END;
                IF keyword IS NOT NULL THEN
                    reason := format('%s %s is asked for', CASE keyword
                        WHEN 'minimum' THEN 'at least' WHEN 'maximum' THEN 'at most' WHEN 'exclusiveMinimum' THEN 'more than'
                        WHEN 'exclusiveMaximum' THEN 'less than' ELSE 'a multiple of' END, v_schema -> keyword);
                    EXIT;
                END IF;
            END IF;
        ELSIF v_type = 'object' THEN
            IF NOT v_value ?& (v_schema ->> 'required')::text[] THEN
                SELECT r.name INTO v_key FROM unnest((v_schema ->> 'required')::text[]) AS r (name) WHERE NOT v_value ? r.name LIMIT 1;
                keyword := 'required';
                reason := format('%s is missing', to_jsonb(v_key));
                EXIT;
            END IF;
            IF v_schema ?| '{minProperties,maxProperties}' THEN
                SELECT count(*) INTO v_count FROM jsonb_object_keys(v_value);
                keyword := CASE WHEN v_count < (v_schema -> 'minProperties')::numeric THEN 'minProperties'
                                WHEN v_count > (v_schema -> 'maxProperties')::numeric THEN 'maxProperties' END;
                IF keyword IS NOT NULL THEN
                    reason := format('%s %s properties are asked for',
                                     CASE keyword WHEN 'minProperties' THEN 'at least' ELSE 'at most' END, v_schema -> keyword);
                    EXIT;
                END IF;
            END IF;
            IF v_schema ? 'properties' THEN
                FOR v_key, v_sub, v_child IN
                    SELECT p.key, p.value, v_value -> p.key FROM jsonb_each(v_schema -> 'properties') AS p
                    WHERE v_value ? p.key
                      AND NOT (p.value ? 'only_type' AND p.value -> 'type' ? jsonb_typeof(v_value -> p.key))
                LOOP
                    v_places := v_places + 1;
                    v_names[v_places] := v_key;
                    v_parents[v_places] := v_place;
                    v_left := v_left + 1;
                    v_schemas[v_left] := v_sub;
                    v_values[v_left] := v_child;
                    v_at[v_left] := v_places;
                END LOOP;
            END IF;
            IF v_schema ?| '{patternProperties,propertyNames}'
               OR v_schema ? 'additionalProperties' AND v_value - (v_schema ->> 'names')::text[] <> '{}' THEN
                v_rule := coalesce(v_schema -> 'patternProperties', '[]');
                v_other := v_schema -> 'additionalProperties';
                FOR v_key, v_child IN
                    SELECT e.key, e.value FROM jsonb_each(v_value) AS e
                    WHERE v_rule <> '[]' OR v_schema ? 'propertyNames'
                       OR coalesce(NOT v_schema -> 'properties' ? e.key, true)
                          AND NOT (v_other ? 'only_type' AND v_other -> 'type' ? jsonb_typeof(e.value))
                LOOP
                    p_steps := p_steps - jsonb_array_length(v_rule) * (1 + octet_length(v_key) / 1024);
                    IF p_steps < 0 OR v_left > p_steps THEN
                        keyword := 'limit';
                        reason := 'checking it takes too many steps';
                        EXIT;
                    END IF;
                    v_count := 0;
                    FOR v_sub, v_text IN
                        SELECT p.p -> 'schema', 'patternProperties' FROM jsonb_array_elements(v_rule) AS p (p)
                        WHERE v_key COLLATE "C" ~ (p.p ->> 'pattern')
                        UNION ALL
                        SELECT v_other, 'additionalProperties'
                        WHERE v_other IS NOT NULL AND coalesce(NOT v_schema -> 'properties' ? v_key, true) AND NOT EXISTS (
                            SELECT FROM jsonb_array_elements(v_rule) AS p (p) WHERE v_key COLLATE "C" ~ (p.p ->> 'pattern'))
                    LOOP
                        IF v_count = 0 THEN
                            v_places := v_places + 1;
                            v_names[v_places] := v_key;
                            v_parents[v_places] := v_place;
                            v_count := 1;
                        END IF;
                        IF v_sub = 'false' THEN
                            v_place := v_places;
                            keyword := v_text;
                            reason := 'a property of this name is not allowed';
                            EXIT;
                        END IF;
                        v_left := v_left + 1;
                        v_schemas[v_left] := v_sub;
                        v_values[v_left] := v_child;
                        v_at[v_left] := v_places;
                    END LOOP;
                    EXIT WHEN keyword IS NOT NULL;
                    IF v_schema ? 'propertyNames' THEN
                        IF p_calls <= 0 THEN
                            keyword := 'limit';
                            reason := 'it is nested too deep under anyOf, oneOf, not, if or contains';
                            EXIT;
                        END IF;
                        SELECT v.p_steps, v.keyword, v.reason INTO v_inner
                        FROM lanekeeper.schema_violation(
                            p_refs, v_schema -> 'propertyNames', to_jsonb(v_key), p_calls - 1, p_steps) AS v;
                        p_steps := v_inner.p_steps;
                        IF v_inner.keyword IS NOT NULL THEN
                            keyword := CASE v_inner.keyword WHEN 'limit' THEN 'limit' ELSE 'propertyNames' END;
                            reason := CASE v_inner.keyword WHEN 'limit' THEN v_inner.reason
                                           ELSE format('a name is not allowed: %s', v_inner.reason) END;
                            EXIT;
                        END IF;
                    END IF;
                END LOOP;
                EXIT WHEN keyword IS NOT NULL;
            END IF;
        ELSIF v_type = 'array' THEN
            v_count := jsonb_array_length(v_value);
            IF v_count < (v_schema -> 'minItems')::numeric THEN
                keyword := 'minItems';
                reason := format('%s or more items are asked for', v_schema -> keyword);
                EXIT;
            END IF;
            IF v_count > (v_schema -> 'maxItems')::numeric THEN
                keyword := 'maxItems';
                reason := format('at most %s items are asked for', v_schema -> keyword);
                EXIT;
            END IF;
            IF v_schema -> 'uniqueItems' = 'true' AND v_count > 1 AND v_count > (
                SELECT count(DISTINCT e.e) FROM jsonb_array_elements(v_value) AS e (e))
            THEN
                keyword := 'uniqueItems';
                reason := 'an item is there twice';
                EXIT;
            END IF;
            IF v_schema ? 'contains' THEN
                IF p_calls <= 0 THEN
                    keyword := 'limit';
                    reason := 'it is nested too deep under anyOf, oneOf, not, if or contains';
                    EXIT;
                END IF;
                keyword := 'contains';
                reason := 'no item matches';
                v_sub := v_schema -> 'contains';
                FOR v_child IN SELECT e.e FROM jsonb_array_elements(v_value) AS e (e) LOOP
                    SELECT v.p_steps, v.keyword, v.reason INTO v_inner
                    FROM lanekeeper.schema_violation(p_refs, v_sub, v_child, p_calls - 1, p_steps) AS v;
                    p_steps := v_inner.p_steps;
                    IF v_inner.keyword IS NULL OR v_inner.keyword = 'limit' THEN
                        keyword := v_inner.keyword;
                        reason := v_inner.reason;
                        EXIT;
                    END IF;
                END LOOP;
                EXIT WHEN keyword IS NOT NULL;
            END IF;
            IF v_schema ?| '{items,prefixItems}' THEN
                v_rule := v_schema -> 'items';
                v_other := coalesce(v_schema -> 'prefixItems', '[]');
                FOR v_ord, v_sub, v_child IN
                    SELECT i.ord - 1, i.schema, i.e
                    FROM (
                        SELECT e.ord, e.e, coalesce(v_other -> (e.ord - 1)::int, v_rule) AS schema
                        FROM jsonb_array_elements(v_value) WITH ORDINALITY AS e (e, ord)
                    ) AS i
                    WHERE i.schema IS NOT NULL AND NOT (i.schema ? 'only_type' AND i.schema -> 'type' ? jsonb_typeof(i.e))
                LOOP
                    IF v_left > p_steps THEN
                        keyword := 'limit';
                        reason := 'checking it takes too many steps';
                        EXIT;
                    END IF;
                    v_places := v_places + 1;
                    v_names[v_places] := v_ord::text;
                    v_parents[v_places] := v_place;
                    v_left := v_left + 1;
                    v_schemas[v_left] := v_sub;
                    v_values[v_left] := v_child;
                    v_at[v_left] := v_places;
                END LOOP;
                EXIT WHEN keyword IS NOT NULL;
            END IF;
        END IF;
    END LOOP;
    IF keyword IS NOT NULL THEN
        pointer := '';
        -- A longer one is cut at its beginning's end: nobody reads it, and a log keeps it.
        WHILE v_place > 0 AND octet_length(pointer) <= 2000 LOOP
            pointer := '/' || replace(replace(left(v_names[v_place], 2000), '~', '~0'), '/', '~1') || pointer;
            v_place := v_parents[v_place];
        END LOOP;
        IF v_place > 0 OR octet_length(pointer) > 2000 THEN
            pointer := '…' || right(pointer, 500);
        END IF;
    ELSE
        reason := NULL;
    END IF;
END
$$;
