"""The units, by systemd-analyze, which needs no running systemd."""

import configparser
import re
import shutil
import sys

from common import drain_s, run, seconds

# Tenths of systemd's exposure level, 0 to 100. What is left is the network, without which there is no proxy.
EXPOSURE = 12


def check(place):
    folder = place.folder()
    complaints = []
    for name in ("citetap.service", "citetap.socket"):
        text = (place.deploy / "systemd" / name).read_text()
        if name == "citetap.service" and "ExecStart=/usr/local/bin/citetap serve " not in text:
            complaints.append("ExecStart is not /usr/local/bin/citetap serve")
        # Programs that are on this machine, as systemd-analyze looks for them.
        text = text.replace("/usr/local/bin/citetap", str(place.binary)).replace("/bin/kill ", f"{sys.executable} ")
        (folder / name).write_text(text)
    # A drop-in is read with its unit.
    (folder / "citetap.service.d").mkdir()
    shutil.copy(place.deploy / "systemd/shared-store.conf", folder / "citetap.service.d/store.conf")
    code, said = run("systemd-analyze", "verify", "--man=no", folder / "citetap.service", folder / "citetap.socket")
    # It may also tell of other units on this machine.
    complaints += [line.replace(f"{folder}/", "") for line in said.splitlines() if "citetap" in line]
    if code and not complaints:
        complaints.append(f"systemd-analyze verify: {code} {said}")
    code, said = run("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}",
                     folder / "citetap.service")
    if code:
        complaints.append(f"exposed: {said.strip().splitlines()[-1]}")

    service = unit(place.deploy / "systemd/citetap.service")["Service"]
    needed = drain_s(place, {}, dict(re.findall(r"(CITETAP\w+)=(\S+)", service["Environment"])))
    if seconds(service["TimeoutStopSec"]) <= needed:
        complaints.append(f"TimeoutStopSec is not longer than the {needed:.0f} s that citetap may take")
    if service.get("Type") != "notify":
        complaints.append("Type is not notify")
    if "-HUP" not in service.get("ExecReload", ""):
        complaints.append("ExecReload does not send SIGHUP")
    streams = place.defaults()["limits"]["streams"]
    if int(service.get("LimitNOFILE", 1024)) < 2 * streams:
        complaints.append(f"LimitNOFILE is less than two for each of {streams} streams")
    listen = unit(place.deploy / "systemd/citetap.socket")["Socket"]["ListenStream"]
    if listen != place.defaults()["listen"]:
        complaints.append(f"the socket is {listen}, and citetap's default is {place.defaults()['listen']}")
    return complaints


def unit(path):
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string(path.read_text())
    return parser
