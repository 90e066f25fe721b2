"""A private CA and certificates of servers, made with the program openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_LEAF = """
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = {usage}
subjectAltName = {names}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
LOCAL = "DNS:localhost, IP:127.0.0.1"


@dataclass(frozen=True)
class Authority:
    """A CA with an intermediate one, which signs: clients need the chain."""

    folder: Path

    @property
    def ca(self) -> Path:
        """What clients trust."""
        return self.folder / "root.crt"

    def issue(
        self,
        folder: Path,
        names: str = LOCAL,
        *,
        usage: str = "serverAuth",
        dates: tuple[str, str] | None = None,
    ) -> tuple[Path, Path]:
        """A certificate with its chain, and its key, in a folder; the files there are replaced."""
        folder.mkdir(exist_ok=True)
        request, alone = folder / "tls.csr", folder / "alone.crt"
        certificate, key, extensions = folder / "tls.crt", folder / "tls.key", folder / "ext"
        extensions.write_text(_LEAF.format(names=names, usage=usage), encoding="utf-8")
        _openssl("req", *_CURVE, "-subj", "/CN=server", "-keyout", key, "-out", request)
        valid = ("-days", "30") if dates is None else ("-startdate", dates[0], "-enddate", dates[1])
        _openssl(
            *("ca", "-batch", "-notext", "-config", self.folder / "ca.conf", "-in", request),
            *("-out", alone, "-extfile", extensions, *valid),
        )
        chain = (self.folder / "middle.crt").read_bytes()
        certificate.write_bytes(alone.read_bytes() + chain)
        return certificate, key


def authority(folder: Path) -> Authority:
    """A new CA in that folder."""
    folder.mkdir()
    ca = "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"
    options = [word for extension in ca for word in ("-addext", extension)]
    for name, signer in (("root", None), ("middle", "root")):
        by = () if signer is None else ("-CA", folder / "root.crt", "-CAkey", folder / "root.key")
        _openssl(
            *("req", "-x509", *_CURVE, "-subj", f"/CN={name}", "-days", "30", *options, *by),
            *("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"),
        )
    (folder / "index.txt").touch()
    (folder / "ca.conf").write_text(
        f"""
[ca]
default_ca = own
[own]
dir = {folder}
database = $dir/index.txt
new_certs_dir = $dir
rand_serial = yes
unique_subject = no
certificate = $dir/middle.crt
private_key = $dir/middle.key
default_md = sha256
policy = any
[any]
commonName = supplied
""",
        encoding="utf-8",
    )
    return Authority(folder)


def encrypt(key: Path) -> None:
    """Replace a key with the same one under a password."""
    _openssl("ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", key)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
