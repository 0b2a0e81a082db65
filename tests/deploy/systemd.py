"""Checks the systemd units with systemd-analyze, which needs no running systemd."""

import configparser
import re
import shutil
import sys

from common import drain_s, run, seconds

# Limit of systemd's exposure level in tenths, 0 to 100. The rest is network access, which a proxy needs.
EXPOSURE = 12


def check(repo):
    folder = repo.folder()
    complaints = []
    for name in ("citetap.service", "citetap.socket"):
        text = (repo.deploy / "systemd" / name).read_text()
        if name == "citetap.service" and "ExecStart=/usr/local/bin/citetap serve " not in text:
            complaints.append("ExecStart is not /usr/local/bin/citetap serve")
        # systemd-analyze checks that programs exist, so use ones that do.
        text = text.replace("/usr/local/bin/citetap", str(repo.binary)).replace("/bin/kill ", f"{sys.executable} ")
        (folder / name).write_text(text)
    # A drop-in is read with its unit.
    (folder / "citetap.service.d").mkdir()
    shutil.copy(repo.deploy / "systemd/shared-store.conf", folder / "citetap.service.d/store.conf")
    code, output = run("systemd-analyze", "verify", "--man=no", folder / "citetap.service", folder / "citetap.socket")
    # It may also report other units of this machine.
    complaints += [line.replace(f"{folder}/", "") for line in output.splitlines() if "citetap" in line]
    if code and not complaints:
        complaints.append(f"systemd-analyze verify: {code} {output}")
    code, output = run("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}",
                     folder / "citetap.service")
    if code:
        complaints.append(f"exposed: {output.strip().splitlines()[-1]}")

    service = unit(repo.deploy / "systemd/citetap.service")["Service"]
    needed = drain_s(repo, {}, dict(re.findall(r"(CITETAP\w+)=(\S+)", service["Environment"])))
    if seconds(service["TimeoutStopSec"]) <= needed:
        complaints.append(f"TimeoutStopSec is not longer than the {needed:.0f} s that citetap may take")
    if service.get("Type") != "notify":
        complaints.append("Type is not notify")
    if "-HUP" not in service.get("ExecReload", ""):
        complaints.append("ExecReload does not send SIGHUP")
    streams = repo.defaults()["limits"]["streams"]
    if int(service.get("LimitNOFILE", 1024)) < 2 * streams:
        complaints.append(f"LimitNOFILE is less than two for each of {streams} streams")
    listen = unit(repo.deploy / "systemd/citetap.socket")["Socket"]["ListenStream"]
    if listen != repo.defaults()["listen"]:
        complaints.append(f"the socket is {listen}, and citetap's default is {repo.defaults()['listen']}")
    return complaints


def unit(path):
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string(path.read_text())
    return parser
