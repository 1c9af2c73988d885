"""A relay to the mock provider for each of the other providers, so that each has an address of its own: a gateway knows a
provider by its host and port. `relays.py FOLDER` writes their addresses to `relays.json` there, and reads the mock's from
`ready.json` once it is called."""

import asyncio
import json
import pathlib
import sys
import urllib.parse

from clients import RELAYED


async def pass_on(source, target):
    """Copies one direction of a connection."""
    try:
        while piece := await source.read(65_536):
            target.write(piece)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()


def relay(folder):
    async def connected(reader, writer):
        mock = urllib.parse.urlsplit(json.loads((folder / "ready.json").read_text())["openai_url"])
        to_mock, from_mock = reversed(await asyncio.open_connection(mock.hostname, mock.port))
        await asyncio.gather(pass_on(reader, to_mock), pass_on(from_mock, writer))

    return connected


async def main(folder):
    servers = {name: await asyncio.start_server(relay(folder), "127.0.0.1", 0) for name in RELAYED}
    addresses = {name: "%s:%d" % server.sockets[0].getsockname() for name, server in servers.items()}
    written = folder / "relays.new"
    written.write_text(json.dumps(addresses))
    written.rename(folder / "relays.json")
    await asyncio.gather(*(server.serve_forever() for server in servers.values()))


if __name__ == "__main__":
    asyncio.run(main(pathlib.Path(sys.argv[1])))
