-- Sums over the records of one tenant, day (UTC, counted from 1970-01-01) and provider. Changed in the transaction that
-- changes a record; gone with its last record.
CREATE TABLE daily (
    n                INTEGER PRIMARY KEY,
    tenant           TEXT    NOT NULL,
    day              INTEGER NOT NULL,
    provider         TEXT    NOT NULL,
    messages         INTEGER NOT NULL,
    with_sources     INTEGER NOT NULL,
    citations        INTEGER NOT NULL,
    cited            INTEGER NOT NULL,
    supplemental     INTEGER NOT NULL,
    filtered         INTEGER NOT NULL,
    failed           INTEGER NOT NULL,
    duplicates       INTEGER NOT NULL,
    dangling_markers INTEGER NOT NULL,
    UNIQUE (tenant, day, provider)
) STRICT;

-- The same by site.
CREATE TABLE daily_site (
    slot      INTEGER NOT NULL REFERENCES daily (n) ON DELETE CASCADE,
    domain    TEXT    NOT NULL,
    messages  INTEGER NOT NULL,
    citations INTEGER NOT NULL,
    cited     INTEGER NOT NULL,
    PRIMARY KEY (slot, domain)
) STRICT, WITHOUT ROWID;

-- The sites that can be among the first of many days. Most sites of a day have a citation or two: those would make up
-- nearly all of the index, and of what it costs to keep it.
CREATE INDEX daily_site_head ON daily_site (slot, citations DESC) WHERE citations >= 8;

-- JSON: what this record adds to the sums, so that just that can be taken away again, whatever a later version would
-- count. NULL: it was here before the sums were, and was counted from its body.
ALTER TABLE record ADD COLUMN tally TEXT;
