-- What there is one of. `horizon_ms`: records of the days that were created before it are gone, though their rows stay
-- until the day is dropped. It never goes back.
CREATE TABLE citetap_meta (
    one        INT    PRIMARY KEY CHECK (one = 1),
    schema     INT    NOT NULL,
    horizon_ms BIGINT NOT NULL
);

INSERT INTO citetap_meta (one, schema, horizon_ms) VALUES (1, 0, -9223372036854775808);

-- Tells a record from an earlier one of the same key; the domains of a record are found by it.
CREATE SEQUENCE citetap_n AS BIGINT;

-- Every text is ordered by its bytes, whatever the database's language.
CREATE TABLE citetap_record (
    n            BIGINT NOT NULL,
    tenant       TEXT   COLLATE "C" NOT NULL,
    provider     TEXT   COLLATE "C" NOT NULL,
    id           TEXT   COLLATE "C" NOT NULL,
    created_ms   BIGINT NOT NULL,
    conversation TEXT   COLLATE "C",
    task         TEXT   COLLATE "C" NOT NULL,
    -- JSON: the record, and the tenant that it was stored for.
    body         TEXT   COLLATE "C" NOT NULL,
    -- Lower-cased by citetap: what lower() knows depends on the database's language.
    search       TEXT   COLLATE "C" NOT NULL,
    -- JSON: what this record adds to the sums, so that just that can be taken away again.
    tally        TEXT   COLLATE "C" NOT NULL,
    -- To which of the sums.
    shard        SMALLINT NOT NULL
) PARTITION BY RANGE (created_ms);

-- There is no unique key: it would have to hold the time. Who writes a key holds its lock.
CREATE INDEX citetap_record_newest ON citetap_record (tenant, created_ms DESC, provider, id);
CREATE INDEX citetap_record_by_id ON citetap_record (tenant, id, created_ms DESC, provider);
CREATE INDEX citetap_record_of_conversation ON citetap_record (tenant, conversation, created_ms DESC, provider, id)
    WHERE conversation IS NOT NULL;
CREATE INDEX citetap_record_of_task ON citetap_record (tenant, task, created_ms, provider, id);
CREATE INDEX citetap_record_by_n ON citetap_record (n);
-- A sweep reads a few minutes of a day by it.
CREATE INDEX citetap_record_age ON citetap_record (created_ms);

-- A cited hostname and each of its parent domains.
CREATE TABLE citetap_domain (
    n          BIGINT NOT NULL,
    tenant     TEXT   COLLATE "C" NOT NULL,
    domain     TEXT   COLLATE "C" NOT NULL,
    created_ms BIGINT NOT NULL
) PARTITION BY RANGE (created_ms);

CREATE INDEX citetap_domain_newest ON citetap_domain (tenant, domain, created_ms DESC, n);
CREATE INDEX citetap_domain_by_n ON citetap_domain (n);

-- What no day takes: records of long ago or of the future, and those of before the horizon that came after it. Not the
-- default partition of the above: adding a day would look through that, and refuse if it had one of it.
CREATE TABLE citetap_record_apart (LIKE citetap_record INCLUDING ALL);
CREATE TABLE citetap_domain_apart (LIKE citetap_domain INCLUDING ALL);

-- The days: `citetap_record_<number>` and `citetap_domain_<number>` hold what was created in between.
CREATE TABLE citetap_part (
    number  BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    from_ms BIGINT NOT NULL,
    to_ms   BIGINT NOT NULL
);

-- How far a consumer of a task has read.
CREATE TABLE citetap_cursor (
    n          BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant     TEXT   COLLATE "C" NOT NULL,
    task       TEXT   COLLATE "C" NOT NULL,
    consumer   TEXT   COLLATE "C" NOT NULL,
    query      TEXT   COLLATE "C" NOT NULL,
    source     TEXT   COLLATE "C" NOT NULL,
    count      BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    -- No record of the task was newer when this was written: only a sweep beyond it can have taken the last one.
    newest_ms  BIGINT NOT NULL,
    UNIQUE (tenant, task, consumer)
);

CREATE INDEX citetap_cursor_newest ON citetap_cursor (newest_ms);

-- Every source that it has consumed; n tells the first from the last.
CREATE TABLE citetap_consumed (
    n      BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY,
    cursor BIGINT NOT NULL REFERENCES citetap_cursor (n) ON DELETE CASCADE,
    source TEXT   COLLATE "C" NOT NULL,
    PRIMARY KEY (cursor, source)
);

CREATE INDEX citetap_consumed_first ON citetap_consumed (cursor, n);

-- Sums over the records of one tenant, day (UTC, counted from 1970-01-01) and provider. Changed in the transaction that
-- changes a record; gone with its last record. Each replica adds to a shard of its own, so that none waits for another.
-- Shard -1 has the records that are apart.
CREATE TABLE citetap_daily (
    n                BIGINT   PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant           TEXT     COLLATE "C" NOT NULL,
    day              BIGINT   NOT NULL,
    provider         TEXT     COLLATE "C" NOT NULL,
    shard            SMALLINT NOT NULL,
    messages         BIGINT   NOT NULL,
    with_sources     BIGINT   NOT NULL,
    citations        BIGINT   NOT NULL,
    cited            BIGINT   NOT NULL,
    supplemental     BIGINT   NOT NULL,
    filtered         BIGINT   NOT NULL,
    failed           BIGINT   NOT NULL,
    duplicates       BIGINT   NOT NULL,
    dangling_markers BIGINT   NOT NULL,
    UNIQUE (tenant, day, provider, shard)
);

CREATE INDEX citetap_daily_age ON citetap_daily (day) WHERE shard >= 0;

-- The same by site.
CREATE TABLE citetap_daily_site (
    slot      BIGINT NOT NULL REFERENCES citetap_daily (n) ON DELETE CASCADE,
    domain    TEXT   COLLATE "C" NOT NULL,
    messages  BIGINT NOT NULL,
    citations BIGINT NOT NULL,
    cited     BIGINT NOT NULL,
    PRIMARY KEY (slot, domain)
);

-- The sites that can be among the first of many days. Most sites of a day have a citation or two: those would make up
-- nearly all of the index, and of what it costs to keep it.
CREATE INDEX citetap_daily_site_head ON citetap_daily_site (slot, citations DESC) WHERE citations >= 8;

-- Words that are too long for a notification, until those who listen have fetched them. Lost in a crash, as words are.
CREATE UNLOGGED TABLE citetap_word (
    n    BIGINT      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    said TIMESTAMPTZ NOT NULL DEFAULT now(),
    word TEXT        COLLATE "C" NOT NULL
);

-- Written by a health check: the only proof that writing works.
CREATE TABLE citetap_probe (
    one INT    PRIMARY KEY CHECK (one = 1),
    n   BIGINT NOT NULL
);
