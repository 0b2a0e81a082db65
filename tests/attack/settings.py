"""citetap accepts the settings that SECURITY.md recommends."""

import re
import subprocess

from kit import ROOT, attack, require


@attack("citetap check accepts each")
async def snippets_of_the_security_page(kit):
    """Runs `citetap check` on every TOML snippet of SECURITY.md."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    snippets = re.findall(r"^```toml\n(.*?)^```", text, re.S | re.M)
    require(snippets, "there are none")
    for number, snippet in enumerate(snippets):
        folder = kit.folder / f"snippet-{number}"
        folder.mkdir()
        config = folder / "citetap.toml"
        # The store and the certificate of the snippets do not exist here.
        snippet = re.sub(r"^store = .*$", 'store = "memory:"', snippet, flags=re.M)
        snippet = re.sub(r"^\[tls\]\n(?:\w.*\n)*", "", snippet, flags=re.M)
        config.write_text(snippet)
        done = subprocess.run(
            [kit.binary, "check", "--config", config], cwd=folder, capture_output=True, text=True, timeout=30, env={}
        )
        require(done.returncode == 0, f"snippet {number + 1}: {done.stderr.strip()[-300:]}")
    return f"{len(snippets)} snippets"
