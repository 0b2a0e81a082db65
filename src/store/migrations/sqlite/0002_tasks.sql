-- What the client named, else the conversation, else the message: an id of our alphabet. Records that were kept before
-- and whose conversation is outside of it belong to no task.
ALTER TABLE record ADD COLUMN task TEXT;

UPDATE record SET task = CASE
    WHEN conversation IS NULL OR conversation = '' THEN id
    WHEN length(conversation) <= 128 AND conversation NOT GLOB '*[^A-Za-z0-9._:-]*' THEN conversation
END;

CREATE INDEX record_of_task ON record (tenant, task, created_ms, provider, id) WHERE task IS NOT NULL;

-- How far a consumer of a task has read.
CREATE TABLE task_cursor (
    n          INTEGER PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    task       TEXT    NOT NULL,
    consumer   TEXT    NOT NULL,
    query      TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    count      INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    UNIQUE (tenant, task, consumer)
) STRICT;

-- Every source that it has consumed; n tells the first from the last.
CREATE TABLE task_consumed (
    n      INTEGER PRIMARY KEY,
    cursor INTEGER NOT NULL REFERENCES task_cursor (n) ON DELETE CASCADE,
    source TEXT    NOT NULL,
    UNIQUE (cursor, source)
) STRICT;

CREATE INDEX task_consumed_first ON task_consumed (cursor, n);

-- Cursors go with the last record of their task, however it goes.
CREATE TRIGGER record_gone_from_task AFTER DELETE ON record WHEN OLD.task IS NOT NULL BEGIN
    DELETE FROM task_cursor WHERE tenant = OLD.tenant AND task = OLD.task
        AND NOT EXISTS (SELECT 1 FROM record WHERE tenant = OLD.tenant AND task = OLD.task);
END;

CREATE TRIGGER record_moved_from_task AFTER UPDATE OF task ON record WHEN OLD.task IS NOT NEW.task BEGIN
    DELETE FROM task_cursor WHERE tenant = OLD.tenant AND task = OLD.task
        AND NOT EXISTS (SELECT 1 FROM record WHERE tenant = OLD.tenant AND task = OLD.task);
END;
