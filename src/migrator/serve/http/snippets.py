"""The examples of /docs: a client in curl and Python for every operation with a body."""

from __future__ import annotations

INFER = """\
curl http://127.0.0.1:8600/v2/models/photos/infer -H 'content-type: application/json' -d '{
  "id": "r1",
  "inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 3, 16, 16], "data": [0, 1, ...]}]
}'

# Python: pip install 'tritonclient[http]' (or tritonclient[grpc] where grpc_port is set)
import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient("127.0.0.1:8600")
tensor = triton.InferInput("input", [1, 3, 16, 16], "UINT8")
tensor.set_data_from_numpy(np.zeros((1, 3, 16, 16), np.uint8))
answer = client.infer("photos", [tensor], request_id="r1")
print(answer.as_numpy("label"), answer.as_numpy("scores"))"""

FEEDBACK = """\
curl http://127.0.0.1:8600/v2/models/photos/feedback -H 'content-type: application/json' \\
  -d '{"id": "r1", "label": 3}'

# Python: the id is that of the answer; the next window learns the label
import json
import urllib.request

body = json.dumps({"id": "r1", "label": 3}).encode()
request = urllib.request.Request(
    "http://127.0.0.1:8600/v2/models/photos/feedback",
    body,
    {"content-type": "application/json"},  # with tokens also "authorization": "Bearer TOKEN"
)
print(urllib.request.urlopen(request).read())"""

SAMPLES = """\
curl http://127.0.0.1:8600/v2/models/photos/samples -H 'content-type: application/json' -d '{
  "id": "upload-1", "labels": [3, 0],
  "inputs": [{"name": "input", "datatype": "UINT8", "shape": [2, 3, 16, 16], "data": [0, 1, ...]}]
}'"""

INDEX = "curl -X POST http://127.0.0.1:8600/v2/repository/index"

ACTION = """\
curl http://127.0.0.1:8600/admin/actions -H 'content-type: application/json' \\
  -d '{"action": "drain", "tenant": "photos"}'"""

TENANTS = """\
curl http://127.0.0.1:8601/admin/tenants -H 'content-type: application/json' \\
  -H 'migrator-order-key: KEY' -d '{"go": "photos"}'"""
