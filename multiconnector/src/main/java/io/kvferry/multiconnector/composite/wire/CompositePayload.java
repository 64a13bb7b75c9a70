// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.recovery.ConnectorChange;
import io.kvferry.toolkit.recovery.Opened;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// Message between the two halves of a composite: a payload per child, which transfers of children
/// are open, and which children are off.
///
/// @param children one payload per child, EMPTY for none
/// @param opened transfers that children may complete from now on (plans only)
/// @param revoked loads of children that the composite takes back (plans only)
/// @param closed composite transfers and leases that are over (plans only)
/// @param changes children that are closed, opened again and in use again (plans only)
/// @param news children that stopped working on this rank, and how opening others went (reports
///   only)
@SuppressWarnings("ArrayRecordComponent") // one per step, never compared
public record CompositePayload(
        Payload[] children,
        List<Open> opened,
        List<TransferId> revoked,
        List<TransferId> closed,
        List<Change> changes,
        News news) {
    private static final int VERSION = 4;

    /// A transfer of a child that the engine, or the composite, waits for.
    ///
    /// @param whole the composite's transfer of which it is a part; the id itself for a lease
    /// @param part the child's id, as seen outside the composite
    /// @param drain whether a layer-wise child must finish this load at once, since the request
    ///   waits for it
    /// @param composite whether the child consists of others, whose parts of it its worker halves
    ///   report
    public record Open(
            TransferId whole, int child, TransferId part, boolean drain, boolean composite) {
        /// A lease or a hold of one child, no part of a group.
        public static Open alone(int child, TransferId id) {
            return new Open(id, child, id, false, false);
        }
    }

    /// A change of a child's worker halves in this step.
    ///
    /// @param generation how often the child was in use, this time included; of no meaning where it
    ///   is not [ConnectorChange.Kind#USE]
    /// @param reason why the child is off
    public record Change(int child, ConnectorChange change, int generation, Failure reason) {}

    /// A rank's report about its halves.
    ///
    /// @param unclosed children of which a half that was given up is still being closed; in each
    ///   report until it is
    public record News(List<Broken> broken, List<Again> again, List<Integer> unclosed) {
        public static final News NONE = new News(List.of(), List.of(), List.of());

        public boolean isEmpty() {
            return broken.isEmpty() && again.isEmpty() && unclosed.isEmpty();
        }
    }

    /// A child's half was given up.
    public record Broken(int child, Failure failure) {}

    /// How opening a child's half again went.
    public record Again(int child, Opened how) {}

    static CompositePayload empty(int children) {
        var payloads = new Payload[children];
        Arrays.fill(payloads, Payload.EMPTY);
        return ofChildren(payloads);
    }

    public static CompositePayload ofChildren(Payload[] children) {
        return new CompositePayload(
                children, List.of(), List.of(), List.of(), List.of(), News.NONE);
    }

    public boolean isEmpty() {
        for (var child : children) {
            if (!child.isEmpty()) {
                return false;
            }
        }
        return opened.isEmpty()
                && revoked.isEmpty()
                && closed.isEmpty()
                && changes.isEmpty()
                && news.isEmpty();
    }

    /// Writes the frame; costs nothing on a step in which nobody has anything to say.
    public Payload encode(WireWriter out) {
        if (isEmpty()) {
            return Payload.EMPTY;
        }
        out.reset();
        int used = 0;
        for (var child : children) {
            used += child.isEmpty() ? 0 : 1;
        }
        out.i32(used);
        for (int i = 0; i < children.length; i++) {
            if (!children[i].isEmpty()) {
                out.i32(i).i32(children[i].version()).bytes(children[i].bytes());
            }
        }
        out.i32(opened.size());
        for (var open : opened) {
            open.whole.write(out);
            out.i32(open.child);
            open.part.write(out);
            out.bool(open.drain).bool(open.composite);
        }
        out.i32(revoked.size());
        for (var id : revoked) {
            id.write(out);
        }
        out.i32(closed.size());
        for (var id : closed) {
            id.write(out);
        }
        out.i32(changes.size());
        for (var change : changes) {
            out.i32(change.child);
            change.change.write(out);
            out.i32(change.generation);
            failure(out, change.reason);
        }
        out.i32(news.broken.size());
        for (var broken : news.broken) {
            out.i32(broken.child);
            failure(out, broken.failure);
        }
        out.i32(news.again.size());
        for (var again : news.again) {
            out.i32(again.child);
            again.how.write(out);
        }
        out.i32(news.unclosed.size());
        news.unclosed.forEach(out::i32);
        return out.toPayload(VERSION);
    }

    /// @throws KvFerryException PROTOCOL on bytes that no composite with `count` children wrote,
    ///   INCOMPATIBLE on those of another release
    public static CompositePayload decode(Payload payload, int count) {
        var frame = empty(count);
        if (payload.isEmpty()) {
            return frame;
        }
        var in = payload.reader("payload of MultiConnector", VERSION);
        for (int n = in.count(12); n > 0; n--) {
            int child = child(in, count);
            int version = in.i32();
            frame.children[child] = new Payload(version, in.bytes());
        }
        var opened = new ArrayList<Open>();
        for (int n = in.count(32); n > 0; n--) {
            opened.add(
                    new Open(
                            TransferId.read(in),
                            child(in, count),
                            TransferId.read(in),
                            in.bool(),
                            in.bool()));
        }
        var revoked = new ArrayList<TransferId>();
        for (int n = in.count(13); n > 0; n--) {
            revoked.add(TransferId.read(in));
        }
        var closed = new ArrayList<TransferId>();
        for (int n = in.count(13); n > 0; n--) {
            closed.add(TransferId.read(in));
        }
        var changes = new ArrayList<Change>();
        for (int n = in.count(25); n > 0; n--) {
            changes.add(
                    new Change(child(in, count), ConnectorChange.read(in), in.i32(), failure(in)));
        }
        var broken = new ArrayList<Broken>();
        for (int n = in.count(12); n > 0; n--) {
            broken.add(new Broken(child(in, count), failure(in)));
        }
        var again = new ArrayList<Again>();
        for (int n = in.count(13); n > 0; n--) {
            again.add(new Again(child(in, count), Opened.read(in)));
        }
        var unclosed = new ArrayList<Integer>();
        for (int n = in.count(4); n > 0; n--) {
            unclosed.add(child(in, count));
        }
        in.end();
        return new CompositePayload(
                frame.children,
                opened,
                revoked,
                closed,
                changes,
                new News(broken, again, unclosed));
    }

    private static void failure(WireWriter out, Failure failure) {
        out.i32(failure.code().wire()).string(failure.message());
    }

    private static Failure failure(WireReader in) {
        var code = ErrorCode.ofWire(in.i32()).orElse(ErrorCode.INTERNAL);
        return new Failure(code, in.string());
    }

    private static int child(WireReader in, int count) {
        int child = in.i32();
        if (child < 0 || child >= count) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "MultiConnector payload names child "
                            + child
                            + " of "
                            + count
                            + "; the halves were opened with different configurations");
        }
        return child;
    }
}
