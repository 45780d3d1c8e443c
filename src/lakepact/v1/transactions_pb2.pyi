import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TS_UNSPECIFIED: _ClassVar[TransactionState]
    TS_OPEN: _ClassVar[TransactionState]
    TS_PREPARED: _ClassVar[TransactionState]
    TS_APPLIED: _ClassVar[TransactionState]
    TS_ABORTED: _ClassVar[TransactionState]
    TS_APPLY_FAILED_CONFLICT: _ClassVar[TransactionState]
    TS_APPLY_FAILED_RETRYABLE: _ClassVar[TransactionState]

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISOLATION_UNSPECIFIED: _ClassVar[Isolation]
    ISOLATION_SERIALIZABLE: _ClassVar[Isolation]
    ISOLATION_SNAPSHOT: _ClassVar[Isolation]
TS_UNSPECIFIED: TransactionState
TS_OPEN: TransactionState
TS_PREPARED: TransactionState
TS_APPLIED: TransactionState
TS_ABORTED: TransactionState
TS_APPLY_FAILED_CONFLICT: TransactionState
TS_APPLY_FAILED_RETRYABLE: TransactionState
ISOLATION_UNSPECIFIED: Isolation
ISOLATION_SERIALIZABLE: Isolation
ISOLATION_SNAPSHOT: Isolation

class TablePath(_message.Message):
    __slots__ = ("namespace", "name")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    namespace: _containers.RepeatedScalarFieldContainer[str]
    name: str
    def __init__(self, namespace: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ...) -> None: ...

class TableChange(_message.Message):
    __slots__ = ("commit_json",)
    COMMIT_JSON_FIELD_NUMBER: _ClassVar[int]
    commit_json: bytes
    def __init__(self, commit_json: _Optional[bytes] = ...) -> None: ...

class Precondition(_message.Message):
    __slots__ = ("expected_version",)
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    expected_version: int
    def __init__(self, expected_version: _Optional[int] = ...) -> None: ...

class TxChange(_message.Message):
    __slots__ = ("table_id", "table", "table_change", "metadata_document", "intended_blob_uri", "precondition")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_CHANGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    INTENDED_BLOB_URI_FIELD_NUMBER: _ClassVar[int]
    PRECONDITION_FIELD_NUMBER: _ClassVar[int]
    table_id: str
    table: TablePath
    table_change: TableChange
    metadata_document: bytes
    intended_blob_uri: str
    precondition: Precondition
    def __init__(self, table_id: _Optional[str] = ..., table: _Optional[_Union[TablePath, _Mapping]] = ..., table_change: _Optional[_Union[TableChange, _Mapping]] = ..., metadata_document: _Optional[bytes] = ..., intended_blob_uri: _Optional[str] = ..., precondition: _Optional[_Union[Precondition, _Mapping]] = ...) -> None: ...

class TransactionIntent(_message.Message):
    __slots__ = ("target", "table_id", "table", "expected_version", "new_blob_uri", "apply_error_code", "apply_error_message", "apply_error_expected", "apply_error_actual")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEW_BLOB_URI_FIELD_NUMBER: _ClassVar[int]
    APPLY_ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    APPLY_ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    APPLY_ERROR_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    APPLY_ERROR_ACTUAL_FIELD_NUMBER: _ClassVar[int]
    target: str
    table_id: str
    table: TablePath
    expected_version: int
    new_blob_uri: str
    apply_error_code: str
    apply_error_message: str
    apply_error_expected: str
    apply_error_actual: str
    def __init__(self, target: _Optional[str] = ..., table_id: _Optional[str] = ..., table: _Optional[_Union[TablePath, _Mapping]] = ..., expected_version: _Optional[int] = ..., new_blob_uri: _Optional[str] = ..., apply_error_code: _Optional[str] = ..., apply_error_message: _Optional[str] = ..., apply_error_expected: _Optional[str] = ..., apply_error_actual: _Optional[str] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("transaction_id", "warehouse", "state", "isolation", "read_only", "properties", "create_time", "expire_time", "decide_time", "intents", "apply_error_code", "apply_error_message")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    WAREHOUSE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    DECIDE_TIME_FIELD_NUMBER: _ClassVar[int]
    INTENTS_FIELD_NUMBER: _ClassVar[int]
    APPLY_ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    APPLY_ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    warehouse: str
    state: TransactionState
    isolation: Isolation
    read_only: bool
    properties: _containers.ScalarMap[str, str]
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    decide_time: _timestamp_pb2.Timestamp
    intents: _containers.RepeatedCompositeFieldContainer[TransactionIntent]
    apply_error_code: str
    apply_error_message: str
    def __init__(self, transaction_id: _Optional[str] = ..., warehouse: _Optional[str] = ..., state: _Optional[_Union[TransactionState, str]] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., read_only: _Optional[bool] = ..., properties: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., decide_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., intents: _Optional[_Iterable[_Union[TransactionIntent, _Mapping]]] = ..., apply_error_code: _Optional[str] = ..., apply_error_message: _Optional[str] = ...) -> None: ...

class BeginTransactionRequest(_message.Message):
    __slots__ = ("warehouse", "ttl", "isolation", "read_only", "properties", "idempotency_key")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WAREHOUSE_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    warehouse: str
    ttl: _duration_pb2.Duration
    isolation: Isolation
    read_only: bool
    properties: _containers.ScalarMap[str, str]
    idempotency_key: str
    def __init__(self, warehouse: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., read_only: _Optional[bool] = ..., properties: _Optional[_Mapping[str, str]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class BeginTransactionResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class PrepareTransactionRequest(_message.Message):
    __slots__ = ("warehouse", "transaction_id", "changes", "idempotency_key")
    WAREHOUSE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    warehouse: str
    transaction_id: str
    changes: _containers.RepeatedCompositeFieldContainer[TxChange]
    idempotency_key: str
    def __init__(self, warehouse: _Optional[str] = ..., transaction_id: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[TxChange, _Mapping]]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class PrepareTransactionResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class CommitTransactionRequest(_message.Message):
    __slots__ = ("warehouse", "transaction_id", "idempotency_key")
    WAREHOUSE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    warehouse: str
    transaction_id: str
    idempotency_key: str
    def __init__(self, warehouse: _Optional[str] = ..., transaction_id: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class CommitTransactionResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class AbortTransactionRequest(_message.Message):
    __slots__ = ("warehouse", "transaction_id")
    WAREHOUSE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    warehouse: str
    transaction_id: str
    def __init__(self, warehouse: _Optional[str] = ..., transaction_id: _Optional[str] = ...) -> None: ...

class AbortTransactionResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class GetTransactionRequest(_message.Message):
    __slots__ = ("warehouse", "transaction_id")
    WAREHOUSE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    warehouse: str
    transaction_id: str
    def __init__(self, warehouse: _Optional[str] = ..., transaction_id: _Optional[str] = ...) -> None: ...

class GetTransactionResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("warehouse", "states", "page_size", "page_token")
    WAREHOUSE_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    warehouse: str
    states: _containers.RepeatedScalarFieldContainer[TransactionState]
    page_size: int
    page_token: str
    def __init__(self, warehouse: _Optional[str] = ..., states: _Optional[_Iterable[_Union[TransactionState, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "next_page_token")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[Transaction]
    next_page_token: str
    def __init__(self, transactions: _Optional[_Iterable[_Union[Transaction, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
