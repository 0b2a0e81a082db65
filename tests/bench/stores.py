"""Fills stores with many records, and measures lookups in them."""

import random
import shutil
import socket
import sqlite3
import time

from targets import Broken

# Tables that a put fills. If any other table has rows, `fill` has to be extended.
KNOWN = {"record", "record_domain", "daily", "daily_site", "probe"}
DAY_MS, DAYS = 86_400_000, 30
# Digits of the upstream's id at the end of a record's id.
DIGITS = 17
FIRST = 10 ** (DIGITS - 1)
# Number of model records, one per dialect, and of references in each.
MODELS, REFERENCES = 3, 3


class Stores:
    """SQLite files under `folder`, one per record count, kept for the next run."""

    def __init__(self, folder, meter):
        self.folder, self.meter = folder, meter

    def get(self, target, records):
        """Returns the file, and the id prefixes of its records (ids without the digits)."""
        model = target.folder.parent / f"{target.name}-model.db"
        self.model(target, model)
        with sqlite3.connect(model) as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            schema = "\n".join(sql or "" for (sql,) in database.execute("SELECT sql FROM sqlite_schema ORDER BY name"))
        database.close()
        path = self.folder / f"schema{version}-{records}.db"
        if not self.is_current(path, schema, records):
            self.fill(path, model, records)
        # Read the file once, so that lookups find it in the page cache.
        with path.open("rb", buffering=0) as file:
            block = bytearray(4 << 20)
            while file.readinto(block):
                pass
        with sqlite3.connect(path) as database:
            ids = database.execute("SELECT id FROM record WHERE n <= ? ORDER BY n", (MODELS,)).fetchall()
        database.close()
        return path, [id[:-DIGITS] for (id,) in ids]

    def has(self, records):
        return any(self.folder.glob(f"schema*-{records}.db"))

    def model(self, target, path):
        """Stores one answer of each dialect with this build."""
        for old in path.parent.glob(path.name + "*"):
            old.unlink()
        target.start(store=path)
        self.meter.load(target, "hold", MODELS, 0.3, 0.2, every_us=50_000, references=REFERENCES)
        target.stop()

    def is_current(self, path, schema, records):
        if not path.exists():
            return False
        with sqlite3.connect(path) as database:
            there = "\n".join(sql or "" for (sql,) in database.execute("SELECT sql FROM sqlite_schema ORDER BY name"))
            count = database.execute("SELECT max(n) FROM record").fetchone()[0]
        database.close()
        return there == schema and count == records

    def fill(self, path, model, records):
        """Copies the model's rows with new ids in every column that has them, and updates the sums as puts would."""
        self.folder.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".part")
        for old in self.folder.glob(made.name + "*"):
            old.unlink()
        shutil.copyfile(model, made)
        database = sqlite3.connect(made, isolation_level=None)
        run = database.execute
        run("PRAGMA journal_mode = OFF")
        run("PRAGMA synchronous = OFF")
        run("PRAGMA cache_size = -1000000")
        tables = [name for (name,) in run("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        if new := [name for name in tables if name not in KNOWN and run(f"SELECT 1 FROM {name} LIMIT 1").fetchone()]:
            raise Broken(f"tests/bench/stores.py does not fill {', '.join(new)}")
        run("BEGIN")
        for table in ("record", "record_domain", "daily", "daily_site"):
            run(f"CREATE TEMP TABLE old_{table} AS SELECT * FROM main.{table}")
            run(f"DELETE FROM main.{table}")
        if (models := run("SELECT count(*) FROM old_record").fetchone()[0]) != MODELS:
            raise Broken(f"{models} of {MODELS} answers were stored")
        run("CREATE TEMP TABLE model AS SELECT row_number() OVER (ORDER BY n) - 1 AS at, * FROM old_record")
        newest = run("SELECT max(created_ms) FROM model").fetchone()[0]
        columns = [name for _, name, *_ in run("PRAGMA main.table_info(record)")]
        digits = f"substr(id, -{DIGITS})"
        made_of = {"n": "i + 1", "created_ms": f"{newest} - ({records} - 1 - i) * {DAYS * DAY_MS} / {records}"}
        run(f"""INSERT INTO main.record ({', '.join(columns)})
                WITH RECURSIVE count (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM count WHERE i + 1 < {records})
                SELECT {', '.join(made_of.get(name, f"iif({name} IS NULL, NULL, replace({name}, {digits}, i + {FIRST}))")
                                  for name in columns)}
                FROM count CROSS JOIN model ON at = i % {MODELS}""")
        run(f"""INSERT INTO main.record_domain (record, domain, tenant, created_ms)
                SELECT r.n, d.domain, r.tenant, r.created_ms FROM main.record r
                JOIN model m ON m.at = (r.n - 1) % {MODELS} JOIN old_record_domain d ON d.record = m.n ORDER BY r.n, d.domain""")
        sums = [name for _, name, *_ in run("PRAGMA main.table_info(daily)") if name not in ("n", "tenant", "day", "provider")]
        run("CREATE TEMP TABLE days AS SELECT tenant, created_ms / 86400000 AS day, provider, count(*) AS many"
            " FROM main.record GROUP BY 1, 2, 3")
        run(f"""INSERT INTO main.daily (tenant, day, provider, {', '.join(sums)})
                SELECT tenant, days.day, provider, {', '.join(f"{name} * many" for name in sums)}
                FROM days JOIN old_daily o USING (tenant, provider)""")
        run("""INSERT INTO main.daily_site (slot, domain, messages, citations, cited)
               SELECT d.n, s.domain, s.messages * many, s.citations * many, s.cited * many
               FROM main.daily d JOIN days USING (tenant, day, provider) JOIN old_daily o USING (tenant, provider)
               JOIN old_daily_site s ON s.slot = o.n""")
        run("COMMIT")
        database.close()
        made.rename(path)


def lookups(port, client, prefixes, records, cpu_s, count=2000, before=200):
    """Requests `GET /citations/{id}` for random ids, one at a time on one connection. Returns the sorted latencies, and the
    CPU time per request, in microseconds."""
    rng = random.Random(7)
    took = []
    with socket.create_connection(("127.0.0.1", port), 10, (client, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(before + count):
            if i == before:
                spent = cpu_s()
            n = rng.randrange(records)
            id = prefixes[n % len(prefixes)] + str(FIRST + n)
            request = f"GET /citations/{id} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
            began = time.perf_counter_ns()
            connection.sendall(request)
            head, body = read_response(connection)
            if i >= before:
                took.append((time.perf_counter_ns() - began) / 1000)
            if not head.startswith(b"HTTP/1.1 200 ") or id.encode() not in body:
                raise Broken(f"GET /citations/{id} of {records} records: {head.splitlines()[0].decode()}")
        spent = cpu_s() - spent
    return sorted(took), spent * 1e6 / count


def read_response(connection):
    got = b""
    while b"\r\n\r\n" not in got:
        got += receive(connection)
    head, body = got.split(b"\r\n\r\n", 1)
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), None)
    if length is None:
        raise Broken("a response of /citations has no length")
    while len(body) < length:
        body += receive(connection)
    return head, body


def receive(connection):
    got = connection.recv(1 << 18)
    if not got:
        raise Broken("a connection to /citations was closed")
    return got
