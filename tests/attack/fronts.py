"""The differential run: nginx and HAProxy get the same requests, as reference for how to frame them."""

import asyncio

from kit import Unexpected, require, route
from targets import Haproxy, Nginx
from upstreams import Upstream
from wire import Connection, Malformed, status_of

# Variant: why citetap is right to relay it although both others refuse it.
KNOWN = {}
CONNECTIONS = 12


class Address:
    def __init__(self, port):
        self.host, self.port = "127.0.0.1", port


async def verdict(address, upstream, data, mark):
    """Returns the first status, and how often the upstream executed the first request."""
    before = len(upstream.received)
    reply = b""
    async with await Connection.open(address) as connection:
        sending = asyncio.create_task(connection.send(data))
        try:
            while piece := (
                await connection.reader.read(1 << 16)
                if not reply
                else await asyncio.wait_for(connection.reader.read(1 << 16), 0.1)
            ):
                reply += piece
        except (TimeoutError, OSError):
            pass
        sending.cancel()
    return status_of(reply), sum(1 for one in upstream.received[before:] if one.complete and f"length/{mark}" in one.path)


async def verdict_in_time(*arguments):
    try:
        async with asyncio.timeout(0.6):
            return await verdict(*arguments)
    except TimeoutError:
        return 0, len(arguments[1].complete(f"length/{arguments[3]}"))
    except Malformed:
        return 0, 0


def describe(result):
    status, executed = result
    if executed:
        return "relayed"
    return f"refused {status}" if status else "no response"


async def run_variants(variants, addresses):
    rows, permits = [], asyncio.Semaphore(CONNECTIONS)

    async def run_one(number, variant):
        async with permits:
            mark = f"{number:08}"
            path, hidden = f"/l0/length/{mark}", f"GET /l0/hidden/{mark} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            data = variant.bytes(path, hidden)
            results = {
                name: await verdict_in_time(address, upstream, data, mark) for name, (address, upstream) in addresses.items()
            }
            rows.append((variant.name, results))

    await asyncio.gather(*(run_one(number, variant) for number, variant in enumerate(variants)))
    return rows


async def compare(kit, variants):
    async with Upstream() as ours, Upstream() as of_nginx, Upstream() as of_haproxy:
        targets = [Nginx("nginx", kit.folder, of_nginx.port), Haproxy("haproxy", kit.folder, of_haproxy.port)]
        try:
            for target in targets:
                await asyncio.to_thread(target.start)
            async with kit.citetap(f'workers = 1\n[limits]\nrequest_body = "1MiB"\n{route("l0", ours.port)}') as server:
                addresses = {
                    "citetap": (server, ours),
                    "nginx": (Address(targets[0].port), of_nginx),
                    "haproxy": (Address(targets[1].port), of_haproxy),
                }
                rows = await run_variants(variants, addresses)
        except Exception as error:
            if type(error).__name__ == "Broken":
                raise Unexpected(str(error)) from error
            raise
        finally:
            for target in targets:
                target.stop()
    alone = [
        (name, results)
        for name, results in rows
        if results["citetap"][1] and not results["nginx"][1] and not results["haproxy"][1]
    ]
    stricter = sum(not results["citetap"][1] and (results["nginx"][1] + results["haproxy"][1]) > 0 for _, results in rows)
    lines = [
        f"{len(rows)} requests; citetap refuses {stricter} that nginx or HAProxy relays. Relayed by citetap alone:",
        "",
        f"{'request':44} {'citetap':12} {'nginx':14} {'haproxy':14}",
    ]
    lines += [
        f"{name:44} {describe(r['citetap']):12} {describe(r['nginx']):14} {describe(r['haproxy']):14}"
        for name, r in sorted(alone)
    ]
    kit.tables.append("\n".join(lines if alone else [lines[0] + " none"]))
    unexpected = sorted(name for name, _ in alone if name not in KNOWN)
    require(not unexpected, f"citetap alone relays {unexpected}")
    return f"{len(rows)} compared, {len(alone)} known differences, {stricter} refused by citetap alone or first"
