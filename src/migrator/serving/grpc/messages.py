"""The messages of the Open Inference Protocol over gRPC, made when the server starts."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "inference"
_MESSAGES = """
ServerLiveRequest:
ServerLiveResponse: bool live 1
ServerReadyRequest:
ServerReadyResponse: bool ready 1
ServerMetadataRequest:
ServerMetadataResponse: string name 1, string version 2, repeated string extensions 3
ModelReadyRequest: string name 1, string version 2
ModelReadyResponse: bool ready 1
ModelMetadataRequest: string name 1, string version 2
ModelMetadataResponse: string name 1, repeated string versions 2, string platform 3, \
repeated TensorMetadata inputs 4, repeated TensorMetadata outputs 5
TensorMetadata: string name 1, string datatype 2, repeated int64 shape 3
InferParameter: oneof bool bool_param 1, oneof int64 int64_param 2, oneof string string_param 3, \
oneof double double_param 4, oneof uint64 uint64_param 5
InferTensorContents: repeated bool bool_contents 1, repeated int32 int_contents 2, \
repeated int64 int64_contents 3, repeated uint32 uint_contents 4, \
repeated uint64 uint64_contents 5, repeated float fp32_contents 6, \
repeated double fp64_contents 7, repeated bytes bytes_contents 8
InferInputTensor: string name 1, string datatype 2, repeated int64 shape 3, \
map InferParameter parameters 4, InferTensorContents contents 5
InferRequestedOutputTensor: string name 1, map InferParameter parameters 2
ModelInferRequest: string model_name 1, string model_version 2, string id 3, \
map InferParameter parameters 4, repeated InferInputTensor inputs 5, \
repeated InferRequestedOutputTensor outputs 6, repeated bytes raw_input_contents 7
InferOutputTensor: string name 1, string datatype 2, repeated int64 shape 3, \
map InferParameter parameters 4, InferTensorContents contents 5
ModelInferResponse: string model_name 1, string model_version 2, string id 3, \
map InferParameter parameters 4, repeated InferOutputTensor outputs 5, \
repeated bytes raw_output_contents 6
ModelConfigRequest: string name 1, string version 2
ModelConfigResponse: ModelConfig config 1
ModelConfig: string name 1, string platform 2, string backend 17, int32 max_batch_size 4, \
repeated ModelInput input 5, repeated ModelOutput output 6, \
ModelDynamicBatching dynamic_batching 11, map ModelParameter parameters 14, \
ModelTransactionPolicy model_transaction_policy 19
ModelParameter: string string_value 1
ModelInput: string name 1, DataType data_type 2, repeated int64 dims 4
ModelOutput: string name 1, DataType data_type 2, repeated int64 dims 3
ModelDynamicBatching: repeated int32 preferred_batch_size 1, uint64 max_queue_delay_microseconds 2
ModelTransactionPolicy: bool decoupled 1
ModelStatisticsRequest: string name 1, string version 2
ModelStatisticsResponse: repeated ModelStatistics model_stats 1
ModelStatistics: string name 1, string version 2, uint64 last_inference 3, \
uint64 inference_count 4, uint64 execution_count 5, InferStatistics inference_stats 6
InferStatistics: StatisticDuration success 1, StatisticDuration fail 2, \
StatisticDuration queue 3, StatisticDuration compute_input 4, StatisticDuration compute_infer 5, \
StatisticDuration compute_output 6, StatisticDuration cache_hit 7, StatisticDuration cache_miss 8
StatisticDuration: uint64 count 1, uint64 ns 2
RepositoryIndexRequest: string repository_name 1, bool ready 2
RepositoryIndexResponse: repeated ModelIndex models 1
ModelIndex: string name 1, string version 2, string state 3, string reason 4
ModelRepositoryParameter: oneof bool bool_param 1, oneof int64 int64_param 2, \
oneof string string_param 3, oneof bytes bytes_param 4
RepositoryModelLoadRequest: string repository_name 1, string model_name 2, \
map ModelRepositoryParameter parameters 3
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: string repository_name 1, string model_name 2, \
map ModelRepositoryParameter parameters 3
RepositoryModelUnloadResponse:
HealthCheckRequest: string service 1
HealthCheckResponse: int32 status 1
"""
"""Per line a message and its fields: [repeated|map|oneof] type name number.

The field numbers are those of the public protocol. The classes are made when the server starts, in
a pool of their own: generated code would be tied to one version of protobuf, and its names would
collide with those of a client library in the same process.
"""
_DATA_TYPES = (
    *("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "STRING", "BF16"),
)
_SCALARS = ("bool", "string", "bytes", "int32", "int64", "uint32", "uint64", "float", "double")


def message_classes() -> dict[str, Any]:
    """Name of a message -> its class."""
    file = FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    types = EnumDescriptorProto(name="DataType")
    for number, name in enumerate(_DATA_TYPES):
        types.value.add(name=f"TYPE_{name}", number=number)
    file.enum_type.append(types)
    file.message_type.extend(map(_message, _MESSAGES.strip().splitlines()))
    pool = DescriptorPool()
    pool.Add(file)
    return {
        message.name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{message.name}"))
        for message in file.message_type
    }


def _message(line: str) -> DescriptorProto:
    name, _, fields = line.partition(":")
    message = DescriptorProto(name=name)
    for text in filter(None, map(str.strip, fields.split(","))):
        *label, kind, field_name, number = text.split()
        field = message.field.add(
            name=field_name,
            number=int(number),
            label=FieldDescriptorProto.LABEL_REPEATED
            if label in (["repeated"], ["map"])
            else FieldDescriptorProto.LABEL_OPTIONAL,
        )
        if label == ["map"]:
            _set_type(field, _map_entry(message, field_name, kind))
        else:
            _set_type(field, kind)
        if label == ["oneof"]:
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0
    return message


def _map_entry(message: DescriptorProto, field: str, kind: str) -> str:
    """A map is a list of messages with a key and a value."""
    entry = message.nested_type.add(name=f"{field.title()}Entry")
    entry.options.map_entry = True
    for number, (name, kind_of_part) in enumerate((("key", "string"), ("value", kind)), 1):
        part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        _set_type(part, kind_of_part)
    return f"{message.name}.{entry.name}"


def _set_type(field: FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
        return
    field.type_name = f".{PACKAGE}.{kind}"
    field.type = (
        FieldDescriptorProto.TYPE_ENUM if kind == "DataType" else FieldDescriptorProto.TYPE_MESSAGE
    )
