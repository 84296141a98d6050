"""The parts of T-SQL that this server understands, as plain trees."""

from __future__ import annotations

from dataclasses import dataclass, field

Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as written; its parameters, MAX as -1."""

    name: str
    parameters: tuple[int, ...] = ()


class Expr:
    """Any expression."""

    __slots__ = ()


@dataclass(slots=True)
class Literal(Expr):
    """`kind`: text, national, number, hex or null; `text` is its content, without quotes."""

    kind: str
    text: str


@dataclass(slots=True)
class Column(Expr):
    parts: Name


@dataclass(slots=True)
class Star(Expr):
    qualifier: Name


@dataclass(slots=True)
class Variable(Expr):
    """@name or @@name, in lower case."""

    name: str


@dataclass(slots=True)
class Over:
    partition: list[Expr]
    order: list[Order]


@dataclass(slots=True)
class Call(Expr):
    name: Name
    args: list[Expr]
    distinct: bool = False
    over: Over | None = None


@dataclass(slots=True)
class Unary(Expr):
    operator: str
    operand: Expr


@dataclass(slots=True)
class Binary(Expr):
    """Arithmetic, bits, comparison, AND and OR, by `operator`."""

    operator: str
    left: Expr
    right: Expr


@dataclass(slots=True)
class Between(Expr):
    operand: Expr
    low: Expr
    high: Expr
    negated: bool


@dataclass(slots=True)
class In(Expr):
    operand: Expr
    values: list[Expr]
    query: Query | None
    negated: bool


@dataclass(slots=True)
class Like(Expr):
    operand: Expr
    pattern: Expr
    escape: Expr | None
    negated: bool


@dataclass(slots=True)
class IsNull(Expr):
    operand: Expr
    negated: bool


@dataclass(slots=True)
class Exists(Expr):
    query: Query


@dataclass(slots=True)
class Case(Expr):
    operand: Expr | None
    whens: list[tuple[Expr, Expr]]
    otherwise: Expr | None


@dataclass(slots=True)
class Cast(Expr):
    operand: Expr
    type: TypeName
    style: Expr | None = None
    lenient: bool = False


@dataclass(slots=True)
class Collate(Expr):
    operand: Expr
    collation: str


@dataclass(slots=True)
class Subquery(Expr):
    query: Query


@dataclass(slots=True)
class Order:
    expression: Expr
    descending: bool


@dataclass(slots=True)
class Item:
    """An item of a select list; `variable` is the variable that it is assigned to."""

    expression: Expr
    alias: str | None
    variable: str | None = None


class Source:
    """Anything in FROM."""

    __slots__ = ()


@dataclass(slots=True)
class TableRef(Source):
    name: Name
    args: list[Expr] | None
    alias: str | None
    columns: list[str]
    hints: list[str]


@dataclass(slots=True)
class Derived(Source):
    query: Query
    alias: str
    columns: list[str]


@dataclass(slots=True)
class ValuesSource(Source):
    rows: list[list[Expr]]
    alias: str
    columns: list[str]


@dataclass(slots=True)
class Join(Source):
    """`kind`: inner, left, right, full, cross, cross apply or outer apply."""

    kind: str
    left: Source
    right: Source
    on: Expr | None


@dataclass(slots=True)
class Select:
    items: list[Item]
    source: Source | None = None
    where: Expr | None = None
    group: list[Expr] = field(default_factory=list)
    having: Expr | None = None
    distinct: bool = False
    top: Expr | None = None
    into: Name | None = None


@dataclass(slots=True)
class Query:
    """SELECTs with set operators between them; `operators[i]` stands before `selects[i + 1]`."""

    selects: list[Select | Query]
    operators: list[str] = field(default_factory=list)
    order: list[Order] = field(default_factory=list)
    offset: Expr | None = None
    fetch: Expr | None = None
    ctes: list[tuple[str, list[str], Query]] = field(default_factory=list)


class Statement:
    """Any statement."""

    __slots__ = ()


@dataclass(slots=True)
class SelectStatement(Statement):
    query: Query


@dataclass(slots=True)
class Insert(Statement):
    """INSERT of `rows` (None is DEFAULT), of a `query` or of a procedure's `call`; without any, DEFAULT VALUES."""

    table: Name
    columns: list[str]
    rows: list[list[Expr | None]] | None
    query: Query | None
    output: list[Item]
    call: Exec | None = None


@dataclass(slots=True)
class Update(Statement):
    """`sets`: column, None or an operator before `=`, new value (None: DEFAULT)."""

    target: Name
    sets: list[tuple[str, str | None, Expr | None]]
    source: Source | None
    where: Expr | None
    top: Expr | None
    output: list[Item]


@dataclass(slots=True)
class Delete(Statement):
    target: Name
    source: Source | None
    where: Expr | None
    top: Expr | None
    output: list[Item]


@dataclass(slots=True)
class ColumnDef:
    name: str
    type: TypeName | None
    collation: str | None = None
    nullable: bool | None = None
    identity: tuple[int, int] | None = None
    default: tuple[str | None, str] | None = None
    computed: str | None = None
    sparse: bool = False


@dataclass(slots=True)
class KeyDef:
    """A primary key, unique constraint or index; each column with True for descending order."""

    name: str | None
    columns: list[tuple[str, bool]]
    primary: bool
    unique: bool
    clustered: bool | None
    constraint: bool = True


@dataclass(slots=True)
class CreateTable(Statement):
    name: Name
    columns: list[ColumnDef]
    keys: list[KeyDef]


@dataclass(slots=True)
class CreateIndex(Statement):
    table: Name
    key: KeyDef


@dataclass(slots=True)
class AlterTable(Statement):
    """`action`: add, drop column, alter column, add key, drop constraint, add default."""

    table: Name
    action: str
    columns: list[ColumnDef] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    keys: list[KeyDef] = field(default_factory=list)


@dataclass(slots=True)
class Drop(Statement):
    """`kind`: table, schema, database, index, user, login, role."""

    kind: str
    names: list[Name]
    lenient: bool
    on: Name | None = None


@dataclass(slots=True)
class Create(Statement):
    """Schema, database, user, login or role; `argument` is the collation, login, password or owner."""

    kind: str
    name: str
    argument: str | None = None


@dataclass(slots=True)
class AlterDatabase(Statement):
    name: str | None
    option: str
    value: str


@dataclass(slots=True)
class AlterRole(Statement):
    role: str
    action: str
    member: str


@dataclass(slots=True)
class Permission(Statement):
    """`action`: grant, deny or revoke."""

    action: str
    permissions: list[str]
    kind: str | None
    target: Name
    principals: list[str]


@dataclass(slots=True)
class Truncate(Statement):
    table: Name


@dataclass(slots=True)
class Exec(Statement):
    """A procedure with its arguments: name (None: by position), value (None: DEFAULT), True for OUTPUT."""

    procedure: Name
    args: list[tuple[str | None, Expr | None, bool]]
    result: str | None = None


@dataclass(slots=True)
class ExecText(Statement):
    text: Expr


@dataclass(slots=True)
class Declare(Statement):
    variables: list[tuple[str, TypeName, Expr | None]]


@dataclass(slots=True)
class DeclareTable(Statement):
    """DECLARE @x TABLE (…)."""

    name: str
    columns: list[ColumnDef]


@dataclass(slots=True)
class Assign(Statement):
    variable: str
    operator: str | None
    value: Expr


@dataclass(slots=True)
class SetOption(Statement):
    """`words`, in lower case: the option and its value."""

    words: list[str]


@dataclass(slots=True)
class If(Statement):
    condition: Expr
    then: Statement
    otherwise: Statement | None


@dataclass(slots=True)
class While(Statement):
    condition: Expr
    body: Statement


@dataclass(slots=True)
class Block(Statement):
    statements: list[Statement]


@dataclass(slots=True)
class Transaction(Statement):
    """`action`: begin, commit, rollback or save; `name`: of the savepoint or transaction, if given."""

    action: str
    name: str | None = None


@dataclass(slots=True)
class Use(Statement):
    database: str


@dataclass(slots=True)
class Print(Statement):
    text: Expr


@dataclass(slots=True)
class WaitFor(Statement):
    seconds: float


@dataclass(slots=True)
class Throw(Statement):
    """RAISERROR or THROW."""

    args: list[Expr]


@dataclass(slots=True)
class Jump(Statement):
    """BREAK, CONTINUE or RETURN."""

    kind: str
