"""Recomputes every vector from its fields alone: a second implementation of the signatures, in a few lines.

usage: python3 verify.py signing.json
"""

import base64, hashlib, hmac, json, sys


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def netstrings(*fields):
    return b"".join(b"%d:%s," % (len(field), field) for field in (str(field).encode() for field in fields))


def request(v):
    payload = base64.b64encode(bytes.fromhex(v["payload_hex"])).join([b'"', b'"']) if v["encoding"] else bytes.fromhex(v["payload_hex"])
    headers = netstrings(*(part for name in sorted(v["headers"]) for part in (name, v["headers"][name])))
    return b"TB1-REQ\n" + netstrings(
        v["key_id"], v["source"], v["destination"], v["endpoint"], v["message_id"], v["type"], v["created"], v["available"],
        v["sent"], v["expires"], v["replay"], v["outbox"], v["content_type"], v["correlation_id"] or "",
        v["ordering_key"] or "", sha256(headers), v["encoding"], sha256(payload))


def probe(v):
    return b"TB1-PRB\n" + netstrings(v["key_id"], v["source"], v["destination"], v["sent"], v["outbox"])


def answer(v):
    return b"TB1-ANS\n" + netstrings(
        v["key_id"], v["source"], v["destination"], v["sent"], sha256(bytes.fromhex("".join(v["request_macs_hex"]))), v["status"],
        sha256(bytes.fromhex(v["body_hex"])))


def main():
    vectors, checked = json.load(open(sys.argv[1], encoding="utf-8")), 0
    for kind, canonical in (("requests", request), ("probes", probe), ("answers", answer)):
        for vector in vectors[kind]:
            text = canonical(vector)
            mac = hmac.new(bytes.fromhex(vector["key_hex"]), text, hashlib.sha256).digest()
            assert text == vector["canonical"].encode(), f"canonical string of {vector['name']}: {text}"
            assert mac.hex() == vector["mac_hex"], f"MAC of {vector['name']}"
            assert base64.b64encode(mac).decode() == vector["mac_base64"], f"base64 of {vector['name']}"
            checked += 1
    print(f"{checked} vectors hold")


main()
