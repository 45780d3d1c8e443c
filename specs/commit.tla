------------------------------- MODULE commit -------------------------------
(***************************************************************************)
(* The commit protocol on object storage, where the only atomic step is a  *)
(* compare-and-swap of one document.                                       *)
(*                                                                         *)
(* What is modelled.  Cells and transaction records as documents with      *)
(* version tokens; coordinators that plan, lock, validate and commit; a    *)
(* second coordinator that takes the same key over, perhaps with fewer     *)
(* cells; swaps whose answer is lost and which land at once, later or      *)
(* never; crashes; helpers who end an expired transaction; a finalizer;    *)
(* two-phase clients whose prepared transaction is committed by another    *)
(* process than the one that prepared it; and readers who take one         *)
(* consistent cut, or read a single cell.                                  *)
(*                                                                         *)
(* There is no clock.  A lease may be over at any moment, so whatever a    *)
(* clock could allow, in whatever order, is among the behaviours checked.  *)
(* Clocks decide only when somebody may try.                               *)
(*                                                                         *)
(* What is promised, by the names the design uses:                         *)
(*   P1  a cut never shows half of a committed transaction;                *)
(*   P2  every revision has one writer, committed on the parent it planned *)
(*       on, and a committed value never disappears;                       *)
(*   P3  a transaction takes effect at most once, in at most one epoch;    *)
(*   P4  committed transactions and all cuts are strictly serializable;    *)
(*   P6  nothing stays stuck: a state without a next step is Settled       *)
(*       (this is TLC's deadlock check);                                   *)
(*   P7  whoever recovers, and in whatever order, a finalized transaction  *)
(*       leaves no lock behind it;                                         *)
(*   P9  "committed" is true, "conflict" is true and final, "busy" means   *)
(*       that this attempt applied nothing and never will.                 *)
(*                                                                         *)
(* Every behaviour without its reader's retries is finite, since each step *)
(* spends something that is bounded (an epoch, a state of a record, a lock,*)
(* a fault).  So P6 says more than "no deadlock": once faults stop, every  *)
(* run ends, and it ends settled.                                          *)
(*                                                                         *)
(* What is deliberately not modelled.                                      *)
(*   - Collection of records (rule 15) rests on a timing assumption: only  *)
(*     the sabotages delete a record, to show what the assumption is for.  *)
(*   - Staging into an open record (rule 16), the probe (19), scanning     *)
(*     (18), the request hash (17), namespaces and overlays: they are      *)
(*     above or beside the order of writes.                                *)
(*   - P5 (a swap that was answered is durable) is taken from the store.   *)
(*     P8 and P10 are not statements about this small world.               *)
(*   - Progress under contention: a coordinator that collides too often    *)
(*     gives up, and that is a fair end here.                              *)
(*   - A store that repeats version tokens.  `writes` makes every document *)
(*     unique, as staging needs it; in these worlds, without staging, late *)
(*     requests that land on repeated bytes break nothing, so no sabotage  *)
(*     claims that they do.                                                *)
(*                                                                         *)
(* Where one action does what the code does in several requests.  Reading  *)
(* a cell, then the record its lock names, then swapping the cell, is one  *)
(* step here.  The swap succeeds only if the cell did not change in        *)
(* between, and what was concluded from the record cannot become false: a  *)
(* committed record stays committed, and an epoch that is dead stays dead. *)
(* That argument needs the order "cell, then record"; the opposite order   *)
(* is the sabotage "record-read-before-cell".  Readers swap nothing, so    *)
(* each of their reads is a step of its own.  Marking a record finalized   *)
(* looks at all its cells in one step; in the code a zombie's lock may     *)
(* slip in behind the look, and is then one more stray lock of a dead      *)
(* epoch.                                                                  *)
(*                                                                         *)
(* `Sabotage` breaks one rule on purpose, and TLC must then refute one     *)
(* named promise: README.md has the table.  A checker that cannot tell a   *)
(* broken protocol from a sound one has proved nothing.                    *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    World,       \* which transactions run: see Jobs
    Sabotage,    \* which rule is broken: see Sabotages; "none" is the protocol
    Reader,      \* "none", "cut" (all cells, rule 10), or "single" (any one cell, its short form)
    Onlooker,    \* TRUE: one more cut, of any of the cells, taken in a single step
    MaxEpoch,    \* a coordinator gives up rather than begin an epoch beyond this one by itself
    MaxLate,     \* how many swaps get no answer: each may land at once, later, or never
    MaxCrashes   \* how many coordinators stop for good

Sabotages == {
    "none",
    \* Outcomes that are unknown (rule 13).
    "unknown-lock-held", "unknown-lock-refused", "unknown-commit-refused", "read-back-by-owner-only",
    \* Fencing, ownership and epochs (rules 2 to 7).
    "clear-without-fencing", "record-read-before-cell", "zombie-adopts", "commit-from-preparing",
    "old-epoch-counts", "release-before-swap", "touched-forgotten", "lease-never-ends",
    \* Reading and validating (rules 1 and 8 to 11).
    "cut-compares-cells", "cut-reads-records-once", "cut-takes-error-as-old", "finalized-means-stale",
    "validation-ignores-locks", "validation-before-locks", "reader-does-not-wait", "reads-locked-in-name",
    \* Answers, applying, the same key again, collection (rules 12, 14, 15, 17).
    "conflict-without-owning", "conflict-from-stale-cache", "lock-drops-committed-value",
    "apply-without-lock", "final-state-taken-over", "record-deleted-early", "id-created-again"}

ASSUME Sabotage \in Sabotages
ASSUME Reader \in {"none", "cut", "single"} /\ Onlooker \in BOOLEAN
ASSUME MaxEpoch \in Nat \ {0} /\ MaxLate \in Nat /\ MaxCrashes \in Nat

-----------------------------------------------------------------------------
(* The worlds.  A job is what one coordinator process was asked to do.  The *)
(* style "again" is a second process that was given the same key, and may   *)
(* take the record over; its plan may have dropped a cell.  A "stubborn"    *)
(* coordinator that was fenced takes its own key over, under the same       *)
(* owner's name and with requests of its earlier epoch still in flight.     *)

Job(tx, writes, reads, style) == [tx |-> tx, writes |-> writes, reads |-> reads, style |-> style]

Jobs ==
    CASE World = "apart" ->      \* two transactions that share nothing: only a reader can tie them
            [a1 |-> Job("T1", {"x"}, {}, "first"),
             b1 |-> Job("T2", {"y"}, {}, "first")]
      [] World = "pair" ->       \* overlapping writes, one depends on a cell that the other changes
            [a1 |-> Job("T1", {"x", "y"}, {}, "first"),
             b1 |-> Job("T2", {"y"}, {"x"}, "first")]
      [] World = "takeover" ->   \* the same, and T1's key comes again and drops a cell
            [a1 |-> Job("T1", {"x", "y"}, {}, "first"),
             a2 |-> Job("T1", {"x"}, {}, "again"),
             b1 |-> Job("T2", {"y"}, {"x"}, "first")]
      [] World = "stubborn" ->   \* pair, and both come back when they are fenced
            [a1 |-> Job("T1", {"x", "y"}, {}, "stubborn"),
             b1 |-> Job("T2", {"y"}, {"x"}, "stubborn")]
      [] World = "skew" ->       \* each reads what the other writes
            [a1 |-> Job("T1", {"x"}, {"y"}, "first"),
             b1 |-> Job("T2", {"y"}, {"x"}, "first")]
      [] World = "order" ->      \* T1 may commit after T2 and still come before it: rule 9
            [a1 |-> Job("T1", {"x"}, {"y"}, "first"),
             b1 |-> Job("T2", {"y"}, {}, "first")]
      [] World = "prepared" ->   \* T1 locks y too and is left prepared, for others to commit or to end
            [a1 |-> Job("T1", {"x"}, {"y"}, "two-phase"),
             b1 |-> Job("T2", {"y"}, {}, "first")]
      [] World = "handover" ->   \* the same, and T1's key comes again and wants to commit at once
            [a1 |-> Job("T1", {"x"}, {"y"}, "two-phase"),
             a2 |-> Job("T1", {"x"}, {"y"}, "again"),
             b1 |-> Job("T2", {"y"}, {}, "first")]
      [] World = "three" ->      \* a ring of three on three cells
            [a1 |-> Job("T1", {"x", "y"}, {}, "first"),
             b1 |-> Job("T2", {"y"}, {"z"}, "first"),
             c1 |-> Job("T3", {"z"}, {"x"}, "first")]

Coordinators == DOMAIN Jobs
Transactions == {Jobs[p].tx : p \in Coordinators}
Cells == UNION {Jobs[p].writes \cup Jobs[p].reads : p \in Coordinators}

Nothing == [n \in {} |-> 0]
NoLock == [tx |-> "none", epoch |-> 0]

(* A cell's value is the list of the transactions that made its revisions,  *)
(* so a lost update is a list with a hole in it.  Its last element is the   *)
(* design's `writer`.                                                       *)
NewCell == [revision |-> 0, value |-> <<>>, lock |-> NoLock, writes |-> 0]

(* A plan maps each written cell to the revision it was planned on and to   *)
(* the new value; `reads` maps each cell only read to the revision seen.    *)
NoRecord == [writes |-> 0, owner |-> "none", epoch |-> 0, state |-> "none",
             plan |-> Nothing, reads |-> Nothing, readsLocked |-> FALSE,
             touched |-> {}, finalized |-> FALSE]

(* What a coordinator has in memory.  `token` is the version of its record  *)
(* that it wrote itself; `held` and `checked` are what it believes.         *)
Idle == [pc |-> "idle", epoch |-> 0, token |-> 0, plan |-> Nothing, reads |-> Nothing,
         readsLocked |-> FALSE, touched |-> {}, held |-> {}, checked |-> {}, answer |-> "none"]
Done(answer) == [Idle EXCEPT !.pc = "done", !.answer = answer]

NoCut == [done |-> FALSE, seen |-> Nothing, cut |-> Nothing, undecided |-> Nothing,
          passed |-> {}, began |-> {}]

VARIABLES
    cell,       \* stored: the cells
    record,     \* stored: the records
    actor,      \* the coordinators' memory
    net,        \* swaps without an answer: those that may still land, and how many were sent
    reader,     \* the reader's memory, then its cut
    onlooker,   \* the onlooker's cut
    helper,     \* used by one sabotage: the records seen dead a while ago
    history     \* for the promises alone; no actor looks at it

vars == <<cell, record, actor, net, reader, onlooker, helper, history>>

Init ==
    /\ cell = [c \in Cells |-> NewCell]
    /\ record = [t \in Transactions |-> NoRecord]
    /\ actor = [p \in Coordinators |-> Idle]
    /\ net = [flying |-> {}, sent |-> 0]
    /\ reader = NoCut
    /\ onlooker = NoCut
    /\ helper = {}
    /\ history = [commits |-> [t \in Transactions |-> 0],     \* how often it was committed
                  began |-> [t \in Transactions |-> {}],      \* what was committed when its epoch began
                  strays |-> {}]                              \* cells locked for a finalized record

-----------------------------------------------------------------------------
(* What a document means.  These take the cell and the record as arguments, *)
(* because a reader judges copies that it read at different moments.        *)

Undecided(r) == r.state \in {"preparing", "prepared"}
Final(r) == r.state \in {"committed", "failed", "aborted"}

(* Rule 2.  After a collision a record locks the cells it only reads, too.  *)
Counts(c, doc, r) ==
    /\ doc.lock # NoLock
    /\ doc.lock.epoch = r.epoch
    /\ \/ c \in DOMAIN r.plan /\ doc.revision = r.plan[c].revision
       \/ r.readsLocked /\ c \in DOMAIN r.reads /\ doc.revision = r.reads[c]

LockedUndecided(c, doc, r) == Undecided(r) /\ Counts(c, doc, r)
LockedCommitted(c, doc, r) == r.state = "committed" /\ c \in DOMAIN r.plan /\ Counts(c, doc, r)
LockedDead(c, doc, r) ==
    doc.lock # NoLock /\ ~LockedUndecided(c, doc, r) /\ ~LockedCommitted(c, doc, r)

(* Rule 1: the record is the authority, and the lock carries no value.      *)
Effective(c, doc, r) ==
    IF LockedCommitted(c, doc, r)
    THEN [revision |-> r.plan[c].revision + 1, value |-> r.plan[c].value]
    ELSE [revision |-> doc.revision, value |-> doc.value]

RecordOf(doc) == IF doc.lock = NoLock THEN NoRecord ELSE record[doc.lock.tx]
Now(c) == Effective(c, cell[c], RecordOf(cell[c]))

Committed == {t \in Transactions : record[t].state = "committed"}

-----------------------------------------------------------------------------
(* Writing a document.  `writes` grows each time, so no version token ever  *)
(* comes back.                                                              *)

PutCell(c, new) ==
    /\ cell' = [cell EXCEPT ![c] = [new EXCEPT !.writes = cell[c].writes + 1]]
    /\ history' = IF new.lock # NoLock /\ record[new.lock.tx].finalized
                  THEN [history EXCEPT !.strays = @ \cup {c}]
                  ELSE history

PutRecord(t, new) ==
    /\ record' = [record EXCEPT ![t] = [new EXCEPT !.writes = record[t].writes + 1]]
    /\ history' = [history EXCEPT
            !.commits[t] = IF new.state = "committed" /\ record[t].state # "committed" THEN @ + 1 ELSE @,
            !.began[t] = IF new.epoch # record[t].epoch THEN Committed ELSE @]

(* A swap that gets no answer.  The store may apply it now, later (while    *)
(* the version token still matches), or never; the sender cannot tell.      *)
Send(kind, key, token, new) ==
    /\ net.sent < MaxLate
    /\ net' = [flying |-> net.flying \cup {[kind |-> kind, key |-> key, token |-> token, new |-> new]},
               sent |-> net.sent + 1]

TokenNow(request) == IF request.kind = "cell" THEN cell[request.key].writes ELSE record[request.key].writes
MayLand(request) == TokenNow(request) = request.token

Land(request) ==
    /\ MayLand(request)
    /\ net' = [net EXCEPT !.flying = @ \ {request}]
    /\ IF request.kind = "cell"
       THEN PutCell(request.key, request.new) /\ UNCHANGED record
       ELSE PutRecord(request.key, request.new) /\ UNCHANGED cell
    /\ UNCHANGED <<actor, reader, onlooker, helper>>

Lose(request) ==
    /\ MayLand(request)
    /\ net' = [net EXCEPT !.flying = @ \ {request}]
    /\ UNCHANGED <<cell, record, actor, reader, onlooker, helper, history>>

-----------------------------------------------------------------------------
(* Coordinators.                                                            *)

Become(p, me) == actor' = [actor EXCEPT ![p] = me]

(* The answer of a lookup, by a coordinator that has lost its record.       *)
(* Retryable: its own attempt is over and applied nothing.  Anything        *)
(* undecided is "unknown", which claims nothing.                            *)
AnswerFrom(r) ==
    CASE r.state = "committed" -> "committed"
      [] r.state = "failed" -> "conflict"
      [] r.state = "aborted" -> "aborted"
      [] r.state = "retryable" -> "busy"
      [] OTHER -> "unknown"

(* A coordinator writes its record from memory, never from what it reads    *)
(* there: rule 4.                                                           *)
RecordBy(p, me, state) ==
    [writes |-> 0, owner |-> p, epoch |-> me.epoch, state |-> state, plan |-> me.plan, reads |-> me.reads,
     readsLocked |-> me.readsLocked, touched |-> me.touched, finalized |-> FALSE]

(* Rule 13, reading a record back after an unknown outcome.  Owner and      *)
(* epoch are not enough: a helper may have ended the record since our swap  *)
(* landed, and it keeps both.  Only our own bytes give us our token back.   *)
ReadsBackAs(current, new) ==
    IF Sabotage = "read-back-by-owner-only"
    THEN current.owner = new.owner /\ current.epoch = new.epoch
    ELSE current = [new EXCEPT !.writes = current.writes]

WithToken(me, token) == IF me.pc = "done" THEN me ELSE [me EXCEPT !.token = token]

(* One swap of the coordinator's own record: applied, unknown or refused.   *)
(* It is also how an unknown swap is settled, by trying it again: our own   *)
(* bytes there mean that it had landed; our old token there means that the  *)
(* same bytes may be sent again; anything else means that the record is no  *)
(* longer ours.  Then only a lookup may answer, or, for a stubborn          *)
(* coordinator, everything begins again with a take-over.                   *)
SwapOwnRecord(p, me, new, applied, unknown) ==
    LET t == Jobs[p].tx
        current == record[t]
    IN  \/ /\ current.writes = me.token
           /\ PutRecord(t, new)
           /\ Become(p, WithToken(applied, me.token + 1))
           /\ UNCHANGED net
        \/ /\ current.writes = me.token
           /\ Send("record", t, me.token, new)
           /\ Become(p, unknown)
           /\ UNCHANGED <<record, history>>
        \/ /\ current.writes # me.token
           /\ Become(p,
                IF ReadsBackAs(current, new) THEN WithToken(applied, current.writes)
                ELSE IF Sabotage = "zombie-adopts" /\ Undecided(current) /\ me.pc \in {"locking", "unsure"}
                     THEN [me EXCEPT !.token = current.writes]
                ELSE IF Jobs[p].style = "stubborn" /\ ~Final(current) /\ current.epoch < MaxEpoch
                     THEN Idle
                ELSE Done(AnswerFrom(current)))
           /\ UNCHANGED <<record, history, net>>

(* Round 2: create the record, or take it over (rule 5), with the whole     *)
(* plan in it.  A final record is answered from, not taken over (rule 17).  *)
(* The revisions planned on may be old ones, and torn ones: a cache or a    *)
(* slow client may have read each of them at any time.                      *)
Propose(p) ==
    LET job == Jobs[p]
        old == record[job.tx]
        othersAreOver == \A q \in Coordinators : q # p /\ Jobs[q].tx = job.tx => actor[q].pc = "done"
        mayTake == \/ old.state \in {"none", "preparing", "retryable"}
                   \/ Sabotage = "final-state-taken-over" /\ old.state = "committed" /\ ~old.finalized
    IN  /\ actor[p].pc = "idle"
        /\ job.style = "again" => old.state # "none" \/ othersAreOver
        /\ old.state # "prepared"      \* its locks are held: CommitPrepared, or End, comes first
        /\ IF ~mayTake
           THEN Become(p, Done(AnswerFrom(old))) /\ UNCHANGED <<record, history, net>>
           ELSE \E base \in [job.writes \cup job.reads -> 0..Cardinality(Transactions)] :
                /\ \A c \in DOMAIN base : base[c] <= Now(c).revision
                /\ LET me == [Idle EXCEPT
                            !.pc = "planned",
                            !.epoch = old.epoch + 1,
                            !.token = old.writes,
                            !.plan = [c \in job.writes |->
                                        [revision |-> base[c],
                                         value |-> Append(SubSeq(Now(c).value, 1, base[c]), job.tx)]],
                            !.reads = [c \in job.reads |-> base[c]],
                            !.readsLocked = job.style = "two-phase",
                            !.touched = (IF Sabotage = "touched-forgotten" THEN {} ELSE old.touched)
                                        \cup job.writes \cup job.reads]
                   IN  SwapOwnRecord(p, me, RecordBy(p, me, "preparing"), [me EXCEPT !.pc = "locking"], me)
        /\ UNCHANGED <<cell, reader, onlooker, helper>>

(* The create or the take-over had no answer: settle it.                    *)
ProposeAgain(p) ==
    LET me == actor[p]
    IN  /\ me.pc = "planned"
        /\ SwapOwnRecord(p, me, RecordBy(p, me, "preparing"), [me EXCEPT !.pc = "locking"], me)
        /\ UNCHANGED <<cell, reader, onlooker, helper>>

LocksReads(me) == me.readsLocked /\ Sabotage # "reads-locked-in-name"
ToLock(me) == DOMAIN me.plan \cup (IF LocksReads(me) THEN DOMAIN me.reads ELSE {})
ToCheck(me) == IF LocksReads(me) THEN {} ELSE DOMAIN me.reads
Expected(me, c) == IF c \in DOMAIN me.plan THEN me.plan[c].revision ELSE me.reads[c]

(* Round 3: lock a cell.  Here in any order; that contenders keep to the    *)
(* order of keys after a collision is for progress, which is not judged     *)
(* here.  One swap over the effective cell (rule 14): if the lock    *)
(* found there is committed, the same swap applies its value; if it is      *)
(* dead, the swap writes over it.  An unknown lock changes nothing in       *)
(* memory: the next attempt finds our lock, or the old cell, or that it is  *)
(* too late (rule 13).                                                      *)
Lock(p, c) ==
    LET me == actor[p]
        doc == cell[c]
        found == RecordOf(doc)
        mine == [tx |-> Jobs[p].tx, epoch |-> me.epoch]
        base == IF Sabotage = "lock-drops-committed-value"
                THEN [revision |-> doc.revision, value |-> doc.value]
                ELSE Effective(c, doc, found)
        new == [revision |-> base.revision, value |-> base.value, lock |-> mine, writes |-> 0]
        ours == \/ doc.lock = mine
                \/ Sabotage = "old-epoch-counts" /\ doc.lock.tx = mine.tx /\ doc.lock.epoch <= mine.epoch
        busy == LockedUndecided(c, doc, found)
        moved == base.revision # Expected(me, c)
        cachedMoved == Sabotage = "conflict-from-stale-cache" /\ base.revision > 0 /\ Expected(me, c) > 0
        holding == [me EXCEPT !.held = @ \cup {c}]
        conflicted == [me EXCEPT !.pc = "conflicted"]
    IN  /\ me.pc = "locking"
        /\ c \in ToLock(me) \ me.held
        /\ \/ /\ ours
              /\ Become(p, holding)
              /\ UNCHANGED <<cell, history, net>>
           \/ /\ ~ours /\ busy
              /\ Become(p, [me EXCEPT !.pc = "collided"])
              /\ UNCHANGED <<cell, history, net>>
           \/ /\ ~ours /\ ~busy /\ (moved \/ cachedMoved)
              /\ Become(p, conflicted)
              /\ UNCHANGED <<cell, history, net>>
           \/ /\ ~ours /\ ~busy /\ ~moved
              /\ PutCell(c, new)
              /\ Become(p, holding)
              /\ UNCHANGED net
           \/ /\ ~ours /\ ~busy /\ ~moved
              /\ Send("cell", c, doc.writes, new)
              /\ Become(p, CASE Sabotage = "unknown-lock-held" -> holding
                             [] Sabotage = "unknown-lock-refused" -> conflicted
                             [] OTHER -> me)
              /\ UNCHANGED <<cell, history>>
        /\ UNCHANGED <<record, reader, onlooker, helper>>

(* Round 4: only when every lock is held, look again at the cells that were *)
(* only read.  A foreign undecided lock is as good as moved (rule 8), but   *)
(* it is a collision and not a conflict: it may still come to nothing, and  *)
(* a conflict must be true (rule 12).  The lock of one who only reads the   *)
(* cell, too, is in nobody's way here.                                      *)
Validate(p, c) ==
    LET me == actor[p]
        doc == cell[c]
        found == RecordOf(doc)
    IN  /\ me.pc = "locking"
        /\ c \in ToCheck(me) \ me.checked
        /\ me.held = ToLock(me) \/ Sabotage = "validation-before-locks"
        /\ Become(p,
                IF Effective(c, doc, found).revision # me.reads[c] THEN [me EXCEPT !.pc = "conflicted"]
                ELSE IF /\ LockedUndecided(c, doc, found) /\ c \in DOMAIN found.plan
                        /\ Sabotage # "validation-ignores-locks"
                     THEN [me EXCEPT !.pc = "collided"]
                     ELSE [me EXCEPT !.checked = @ \cup {c}])
        /\ UNCHANGED <<cell, record, net, reader, onlooker, helper, history>>

(* Round 5: the one instant.  For a two-phase client the same swap says     *)
(* "prepared" instead, and the coordinator's part is over.                  *)
Commit(p) ==
    LET me == actor[p]
        goal == IF Jobs[p].style = "two-phase" THEN "prepared" ELSE "committed"
        new == IF Sabotage = "zombie-adopts" THEN [record[Jobs[p].tx] EXCEPT !.state = goal]
               ELSE RecordBy(p, me, goal)
    IN  /\ \/ me.pc = "locking" /\ me.held = ToLock(me) /\ me.checked = ToCheck(me)
           \/ me.pc = "unsure"
        /\ SwapOwnRecord(p, me, new, Done(goal),
                IF Sabotage = "unknown-commit-refused" THEN Done("busy") ELSE [me EXCEPT !.pc = "unsure"])
        /\ UNCHANGED <<cell, reader, onlooker, helper>>

(* Rule 7: after a collision begin a new epoch first.  The locks of the old *)
(* epoch are dead from then on, and clearing them is anybody's (Clear).     *)
Collide(p) ==
    LET me == actor[p]
        next == [me EXCEPT !.pc = "locking", !.epoch = @ + 1, !.readsLocked = TRUE,
                           !.held = {}, !.checked = {}]
    IN  /\ me.pc = "collided"
        /\ me.epoch < MaxEpoch
        /\ SwapOwnRecord(p, me, RecordBy(p, next, "preparing"), next, me)
        /\ UNCHANGED <<cell, reader, onlooker, helper>>

(* Too many collisions, or a commit that stays unknown: swap the record out *)
(* of the way, and only then say "busy".                                    *)
GiveUp(p) ==
    LET me == actor[p]
    IN  /\ \/ me.pc = "unsure"
           \/ me.pc = "collided" /\ me.epoch >= MaxEpoch
        /\ SwapOwnRecord(p, me, RecordBy(p, me, "retryable"), Done("busy"), me)
        /\ UNCHANGED <<cell, reader, onlooker, helper>>

ReleaseEarly(p, c) ==
    /\ Sabotage = "release-before-swap"
    /\ actor[p].pc = "unsure"
    /\ cell[c].lock = [tx |-> Jobs[p].tx, epoch |-> actor[p].epoch]
    /\ PutCell(c, [cell[c] EXCEPT !.lock = NoLock])
    /\ UNCHANGED <<record, actor, net, reader, onlooker, helper>>

(* Rule 12: a final answer needs a successful swap of one's own record.     *)
Refuse(p) ==
    LET me == actor[p]
    IN  /\ me.pc = "conflicted"
        /\ IF Sabotage = "conflict-without-owning"
           THEN Become(p, Done("conflict")) /\ UNCHANGED <<record, history, net>>
           ELSE SwapOwnRecord(p, me, RecordBy(p, me, "failed"), Done("conflict"), me)
        /\ UNCHANGED <<cell, reader, onlooker, helper>>

(* A crash keeps what is in flight.                                         *)
Crash(p) ==
    /\ actor[p].pc \notin {"idle", "done"}
    /\ Cardinality({q \in Coordinators : actor[q].answer = "crashed"}) < MaxCrashes
    /\ Become(p, Done("crashed"))
    /\ UNCHANGED <<cell, record, net, reader, onlooker, helper, history>>

-----------------------------------------------------------------------------
(* Anybody.  These actors keep nothing in memory: whoever meets the         *)
(* documents may do this, and as often as it likes.                         *)

(* A prepared record says that all its locks are held and its reads were    *)
(* validated, so whoever is asked to may commit it, on the version token it *)
(* read.  A preparing record says nothing of the kind (rule 4).             *)
CommitPrepared(t) ==
    LET new == [record[t] EXCEPT !.state = "committed"]
    IN  /\ \/ record[t].state = "prepared"
           \/ Sabotage = "commit-from-preparing" /\ record[t].state = "preparing"
        /\ \/ PutRecord(t, new) /\ UNCHANGED net
           \/ Send("record", t, record[t].writes, new) /\ UNCHANGED <<record, history>>
        /\ UNCHANGED <<cell, actor, reader, onlooker, helper>>

(* Rule 6: the lease is over, which may be at any time.  A prepared         *)
(* transaction has no coordinator who could try again: it is aborted.       *)
End(t) ==
    /\ Undecided(record[t])
    /\ Sabotage # "lease-never-ends"
    /\ PutRecord(t, [record[t] EXCEPT !.state = IF @ = "prepared" THEN "aborted" ELSE "retryable"])
    /\ UNCHANGED <<cell, actor, net, reader, onlooker, helper>>

Expire(t) ==
    /\ record[t].state = "retryable"
    /\ PutRecord(t, [record[t] EXCEPT !.state = "aborted"])
    /\ UNCHANGED <<cell, actor, net, reader, onlooker, helper>>

(* Rule 14: applying is a swap over the matching lock.                      *)
Apply(t, c) ==
    LET doc == cell[c]
        r == record[t]
    IN  /\ \/ doc.lock.tx = t /\ LockedCommitted(c, doc, r)
           \/ Sabotage = "apply-without-lock" /\ r.state = "committed" /\ ~r.finalized /\ c \in DOMAIN r.plan
        /\ PutCell(c, [doc EXCEPT !.revision = r.plan[c].revision + 1, !.value = r.plan[c].value,
                                  !.lock = NoLock])
        /\ UNCHANGED <<record, actor, net, reader, onlooker, helper>>

(* Rule 3: only dead locks are cleared.  Upkeep finds them through          *)
(* `touched`; others write over them when they lock.                        *)
Clear(t, c) ==
    LET doc == cell[c]
    IN  /\ c \in record[t].touched
        /\ doc.lock.tx = t
        /\ \/ LockedDead(c, doc, record[t])
           \/ Sabotage = "clear-without-fencing" /\ Undecided(record[t])
           \/ Sabotage = "record-read-before-cell" /\ t \in helper
        /\ PutCell(c, [doc EXCEPT !.lock = NoLock])
        /\ UNCHANGED <<record, actor, net, reader, onlooker, helper>>

RememberDead(t) ==
    /\ Sabotage = "record-read-before-cell"
    /\ t \notin helper
    /\ record[t].state = "retryable"
    /\ helper' = helper \cup {t}
    /\ UNCHANGED <<cell, record, actor, net, reader, onlooker, history>>

Finalize(t) ==
    /\ Final(record[t])
    /\ ~record[t].finalized
    /\ \A c \in record[t].touched : cell[c].lock.tx # t
    /\ PutRecord(t, [record[t] EXCEPT !.finalized = TRUE])
    /\ UNCHANGED <<cell, actor, net, reader, onlooker, helper>>

Delete(t) ==
    /\ Sabotage \in {"record-deleted-early", "id-created-again"}
    /\ record[t].finalized
    /\ PutRecord(t, NoRecord)
    /\ UNCHANGED <<cell, actor, net, reader, onlooker, helper>>

-----------------------------------------------------------------------------
(* The reader of several cells (rule 10): read all cells; read each record  *)
(* that locks one; read all cells again, and every record that was          *)
(* undecided.  At the moment between the two rounds every cell was as read, *)
(* and every record was as concluded: that moment is the cut.  The first    *)
(* reading of the cells may come from a cache filled long before, so the    *)
(* reader is taken to have been asked only after it: the cut must hold all  *)
(* that was committed by then.                                              *)
(*                                                                          *)
(* The reader of one cell (its short form) reads the cell, then the record  *)
(* if there is a lock, and stops.                                           *)

(* Rule 9: T1 read y and writes x, T2 has overwritten y and is committed.   *)
(* T1 comes before T2 if it still commits, so nobody may see T2's y beside  *)
(* the old x.  If the record has locked the cells it reads, nobody can have *)
(* overwritten them, and there is nothing to wait for.                      *)
MustWaitFor(r) ==
    /\ Undecided(r) /\ DOMAIN r.reads # {} /\ ~r.readsLocked
    /\ Sabotage # "reader-does-not-wait"

Waits(c, doc, r) == LockedUndecided(c, doc, r) /\ MustWaitFor(r)

(* Something this attempt relies on has changed, so that its second round   *)
(* can only fail.  Such an attempt is as good as over, and the next one may *)
(* begin; looking into the reader's future this way keeps the world small.  *)
Doomed ==
    /\ Reader = "cut"
    /\ \/ \E c \in DOMAIN reader.seen \ reader.passed : reader.seen[c].writes # cell[c].writes
       \/ \E t \in DOMAIN reader.undecided \ reader.passed :
            ~Undecided(record[t]) \/ record[t].epoch # reader.undecided[t]

Beginning == Reader # "none" /\ ~reader.done /\ (reader = NoCut \/ Doomed)
UnderWay == Reader # "none" /\ ~reader.done /\ reader # NoCut /\ ~Doomed

(* What was committed when the reader was asked: in the short form before   *)
(* its one read, else before the first read that is no cache's to answer.   *)
JustAsked == reader.passed = {} /\ \A c \in DOMAIN reader.cut : reader.seen[c].lock = NoLock
Asked == IF Reader = "cut" /\ JustAsked THEN Committed ELSE reader.began

Accept(cut, began) == [NoCut EXCEPT !.done = TRUE, !.cut = cut, !.began = began]

Look(c, attempt) ==
    LET doc == cell[c]
        atOnce == Sabotage = "cut-compares-cells"
        resolved == attempt.cut @@ (c :> Now(c).revision)
    IN  /\ atOnce => ~Waits(c, doc, RecordOf(doc))
        /\ reader' = IF Reader = "single" /\ doc.lock = NoLock THEN Accept(resolved, attempt.began)
                     ELSE [attempt EXCEPT !.seen = @ @@ (c :> doc),
                                          !.cut = IF doc.lock = NoLock \/ atOnce THEN resolved ELSE @]
        /\ UNCHANGED <<cell, record, actor, net, helper, history>>

ReadCell(c) ==
    \/ /\ Beginning
       /\ Look(c, IF Reader = "single" THEN [NoCut EXCEPT !.began = Committed] ELSE NoCut)
       /\ onlooker' = IF Reader = "cut" THEN NoCut ELSE onlooker
    \/ /\ UnderWay /\ Reader = "cut" /\ c \notin DOMAIN reader.seen
       /\ Look(c, reader)
       /\ UNCHANGED onlooker

ReadRecord(t) ==
    LET r == record[t]
        its == {c \in DOMAIN reader.seen \ DOMAIN reader.cut : reader.seen[c].lock.tx = t}
        old == [c \in its |-> reader.seen[c].revision]
        (* A finalized record does not make the lock stale that was read before: by now the value *)
        (* has been applied to the cell, but the copy in hand is older.                           *)
        effective == IF Sabotage = "finalized-means-stale" /\ r.finalized THEN old
                     ELSE [c \in its |-> Effective(c, reader.seen[c], r).revision]
        undecided == \E c \in its : LockedUndecided(c, reader.seen[c], r)
        after(cut) ==
            IF Reader = "single" THEN Accept(reader.cut @@ cut, Asked)
            ELSE [reader EXCEPT !.cut = @ @@ cut,
                                !.began = Asked,
                                !.undecided = IF undecided /\ Sabotage # "cut-reads-records-once"
                                              THEN @ @@ (t :> r.epoch) ELSE @]
    IN  /\ UnderWay
        /\ Reader = "cut" => DOMAIN reader.seen = Cells
        /\ its # {}
        /\ \A c \in its : ~Waits(c, reader.seen[c], r)
        /\ \/ reader' = after(effective)
           \/ Sabotage = "cut-takes-error-as-old" /\ reader' = after(old)
        /\ UNCHANGED <<cell, record, actor, net, onlooker, helper, history>>

ReadAgain(n) ==
    LET all == Cells \cup DOMAIN reader.undecided
        passed == reader.passed \cup {n}
    IN  /\ UnderWay
        /\ Reader = "cut"
        /\ DOMAIN reader.cut = Cells
        /\ n \in all \ reader.passed
        /\ reader' = IF passed = all THEN Accept(reader.cut, Asked)
                     ELSE [reader EXCEPT !.passed = passed, !.began = Asked]
        /\ UNCHANGED <<cell, record, actor, net, onlooker, helper, history>>

(* A second reader, who is lucky: its whole cut falls into one instant.     *)
(* Beside the slow reader it is there to disagree with it, so it looks      *)
(* while that attempt is under way and is forgotten with it.                *)
LookAtOnce(these) ==
    /\ Onlooker
    /\ ~onlooker.done
    /\ Reader = "cut" => UnderWay
    /\ \A c \in these : ~Waits(c, cell[c], RecordOf(cell[c]))
    /\ onlooker' = Accept([c \in these |-> Now(c).revision], Committed)
    /\ UNCHANGED <<cell, record, actor, net, reader, helper, history>>

-----------------------------------------------------------------------------
(* P6: where a run may end.                                                 *)
Settled ==
    /\ \A p \in Coordinators : actor[p].pc = "done"
    /\ \A t \in Transactions : record[t].state = "none" \/ (Final(record[t]) /\ record[t].finalized)
    /\ \A c \in Cells : cell[c].lock # NoLock =>
            c \in history.strays /\ LockedDead(c, cell[c], RecordOf(cell[c]))
    /\ Reader # "none" => reader.done

Next ==
    \/ \E p \in Coordinators :
        \/ Propose(p) \/ ProposeAgain(p) \/ Commit(p) \/ Collide(p) \/ GiveUp(p) \/ Refuse(p) \/ Crash(p)
        \/ \E c \in Cells : Lock(p, c) \/ Validate(p, c) \/ ReleaseEarly(p, c)
    \/ \E request \in net.flying : Land(request) \/ Lose(request)
    \/ \E t \in Transactions :
        \/ CommitPrepared(t) \/ End(t) \/ Expire(t) \/ Finalize(t) \/ RememberDead(t) \/ Delete(t)
        \/ \E c \in Cells : Apply(t, c) \/ Clear(t, c)
        \/ ReadRecord(t)
    \/ \E c \in Cells : ReadCell(c)
    \/ \E n \in Cells \cup Transactions : ReadAgain(n)
    \/ \E these \in (SUBSET Cells) \ {{}} : LookAtOnce(these)
    \/ Settled /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The promises.                                                            *)

Cuts == {k \in {reader, onlooker} : k.done}

P1_AtomicVisibility ==
    \A k \in Cuts :
        /\ \A t \in Committed : \A c, d \in DOMAIN record[t].plan \cap DOMAIN k.cut :
                (k.cut[c] > record[t].plan[c].revision) = (k.cut[d] > record[t].plan[d].revision)
        /\ \A c \in DOMAIN k.cut : k.cut[c] <= Now(c).revision

P2_NoLostUpdate ==
    /\ \A t \in Committed : \A c \in DOMAIN record[t].plan :
        LET parent == record[t].plan[c].revision
        IN  Now(c).revision > parent /\ Now(c).value[parent + 1] = t
    /\ \A c \in Cells :
        LET v == Now(c).value
        IN  /\ Len(v) = Now(c).revision
            /\ \A i \in 1..Len(v) : /\ v[i] \in Committed
                                    /\ c \in DOMAIN record[v[i]].plan
                                    /\ record[v[i]].plan[c].revision = i - 1

P3_ExactlyOnce ==
    /\ \A t \in Transactions : history.commits[t] <= 1
    /\ \A c \in Cells :
        LET v == Now(c).value
        IN  \A i, j \in 1..Len(v) : v[i] = v[j] => i = j

(* P4.  Revisions give the order of writes, so a serial order exists if and *)
(* only if "must come before" has no cycle.  A written cell was also read,  *)
(* at the revision it was planned on.  Real time: whatever was committed    *)
(* when something began comes before it.  (That a cut was taken before      *)
(* something began adds nothing: what the cut saw was committed by then.)   *)
CutOf(n) == IF n = "reader" THEN reader ELSE onlooker
Writes(n) == IF n \in Transactions THEN DOMAIN record[n].plan ELSE {}
Reads(n) == IF n \in Transactions THEN DOMAIN record[n].plan \cup DOMAIN record[n].reads
            ELSE DOMAIN CutOf(n).cut
RevisionRead(n, c) ==
    IF n \notin Transactions THEN CutOf(n).cut[c]
    ELSE IF c \in DOMAIN record[n].plan THEN record[n].plan[c].revision
    ELSE record[n].reads[c]
CommittedBefore(n) == IF n \in Transactions THEN history.began[n] ELSE CutOf(n).began

MustPrecede(a, b) ==
    \/ a \in CommittedBefore(b)
    \/ \E c \in Writes(a) \cap Reads(b) : RevisionRead(b, c) > record[a].plan[c].revision
    \/ \E c \in Reads(a) \cap Writes(b) : RevisionRead(a, c) <= record[b].plan[c].revision

RECURSIVE Acyclic(_)
Acyclic(nodes) ==
    IF Cardinality(nodes) < 2 THEN TRUE
    ELSE LET first == {b \in nodes : \A a \in nodes \ {b} : ~MustPrecede(a, b)}
         IN  first # {} /\ Acyclic(nodes \ first)

P4_StrictSerializability ==
    Acyclic(Committed \cup (IF reader.done THEN {"reader"} ELSE {})
                      \cup (IF onlooker.done THEN {"onlooker"} ELSE {}))

(* A lock that lands when the record is already finalized is a stray; it is *)
(* dead, and the next who meets it writes over it.  No other lock is left.  *)
P7_FinalizedIsClean ==
    \A t \in Transactions : record[t].finalized =>
        \A c \in Cells : cell[c].lock.tx = t => c \in history.strays

P9_HonestAnswers ==
    /\ \A p \in Coordinators :
        LET r == record[Jobs[p].tx]
        IN  /\ actor[p].answer = "committed" => r.state = "committed"
            /\ actor[p].answer = "conflict" => r.state = "failed"
            /\ actor[p].answer = "aborted" => r.state = "aborted"
            /\ actor[p].answer = "busy" => ~(r.state = "committed" /\ r.owner = p)
    /\ \A t \in Transactions : record[t].state = "failed" =>       \* the conflict was a true one
        \/ \E c \in DOMAIN record[t].plan : Now(c).revision > record[t].plan[c].revision
        \/ \E c \in DOMAIN record[t].reads : Now(c).revision > record[t].reads[c]

P9_FinalStatesStay ==
    [][\A t \in Transactions : Final(record[t]) => record'[t].state = record[t].state]_vars

(* Rules 2 and 11: the two errors that no run may meet, a lock without a    *)
(* record and an epoch beyond the record's; and no lock of a live epoch is  *)
(* on a cell that its record knows nothing of.                              *)
R2_LocksHaveRecords ==
    \A c \in Cells : cell[c].lock # NoLock =>
        LET r == record[cell[c].lock.tx]
        IN  /\ r.state # "none"
            /\ cell[c].lock.epoch <= r.epoch
            /\ (Undecided(r) /\ cell[c].lock.epoch = r.epoch) => Counts(c, cell[c], r)

-----------------------------------------------------------------------------
(* Witnesses: each is false in some run, or the world is too poor to have   *)
(* tested the rule it names.  TLC must refute every one of them.            *)

Never_TakeOverCommits ==
    \A p \in Coordinators : ~(Jobs[p].style = "again" /\ actor[p].answer = "committed"
                              /\ record[Jobs[p].tx].owner = p /\ record[Jobs[p].tx].epoch > 1)
Never_CommitsAfterCollision == \A t \in Committed : ~record[t].readsLocked
Never_CommitsOutOfOrder ==     \* T1 commits after T2 and yet comes before it
    \A t, u \in Committed : \A c \in DOMAIN record[t].reads \cap DOMAIN record[u].plan :
        record[t].reads[c] > record[u].plan[c].revision
Never_LocksOverCommitted ==    \* the combined swap of rule 14
    [][\A c \in Cells : LockedCommitted(c, cell[c], RecordOf(cell[c])) =>
            cell'[c].lock.tx \in {"none", cell[c].lock.tx}]_vars
Never_LocksOverDead ==
    [][\A c \in Cells : LockedDead(c, cell[c], RecordOf(cell[c])) =>
            cell'[c].lock.tx \in {"none", cell[c].lock.tx}]_vars
Never_LateCommitLands ==
    [][\A request \in net.flying : request \notin net'.flying /\ request.kind = "record" =>
            ~(request.new.state = "committed" /\ record'[request.key].state = "committed")]_vars
Never_LateLockStrays == history.strays = {}
Never_PreparedCommittedByOthers ==
    [][\A t \in Transactions : record[t].state = "prepared" => record'[t].state # "committed"]_vars
Never_PreparedEndedByOthers ==
    [][\A t \in Transactions : record[t].state = "prepared" => record'[t].state # "aborted"]_vars
Never_CutWithUndecidedLock ==
    \A t \in DOMAIN reader.undecided : t \notin reader.passed

-----------------------------------------------------------------------------
(* What tells two states apart.  A version token matters only in being the  *)
(* current one or not, and a request that cannot land any more not at all.  *)
(* A doomed attempt to read is no different from none.  TLC fingerprints    *)
(* this instead of the variables, and the counters cost nothing.            *)
View == <<
    [c \in Cells |-> [cell[c] EXCEPT !.writes = 0]],
    [t \in Transactions |-> [record[t] EXCEPT !.writes = 0]],
    [p \in Coordinators |->
        IF actor[p].pc \in {"idle", "done"} THEN actor[p]
        ELSE [actor[p] EXCEPT !.token = IF @ = record[Jobs[p].tx].writes THEN 1 ELSE 0]],
    {[request EXCEPT !.token = 0, !.new = [@ EXCEPT !.writes = 0]] :
        request \in {q \in net.flying : MayLand(q)}},
    net.sent,
    IF reader.done THEN <<reader.cut, reader.began>>
    ELSE IF Reader = "none" \/ Beginning THEN <<>>
    ELSE <<[c \in DOMAIN reader.seen |->
                IF Reader = "cut" THEN {} ELSE {[reader.seen[c] EXCEPT !.writes = 0]}],
           reader.cut, reader.undecided, reader.passed, reader.began>>,
    IF Reader = "cut" /\ Beginning THEN NoCut ELSE onlooker,
    helper,
    history
    >>
=============================================================================
