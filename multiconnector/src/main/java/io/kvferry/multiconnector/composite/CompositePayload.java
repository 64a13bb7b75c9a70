// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// What the two halves of a composite say to each other: a payload per child, and which transfers
/// of children are open.
///
/// @param children one payload per child, EMPTY for none
/// @param opened transfers that children may complete from now on (plans only)
/// @param closed composite transfers and leases that are over (plans only)
/// @param broken children that do not work any more on this rank (reports only)
@SuppressWarnings("ArrayRecordComponent") // one per step, never compared
record CompositePayload(
        Payload[] children, List<Open> opened, List<TransferId> closed, int[] broken) {
    private static final int VERSION = 1;
    private static final int[] NONE = {};

    /// A transfer of a child that the engine, or the composite, waits for.
    ///
    /// @param whole the composite's transfer of which it is a part; the id itself for a lease
    /// @param part the child's id, as seen outside the composite
    /// @param drain whether a layer-wise child must finish this load at once, since the request
    ///   waits for it
    record Open(TransferId whole, int child, TransferId part, boolean drain) {}

    static CompositePayload empty(int children) {
        var payloads = new Payload[children];
        Arrays.fill(payloads, Payload.EMPTY);
        return new CompositePayload(payloads, List.of(), List.of(), NONE);
    }

    static CompositePayload ofChildren(Payload[] children) {
        return new CompositePayload(children, List.of(), List.of(), NONE);
    }

    boolean isEmpty() {
        for (var child : children) {
            if (!child.isEmpty()) {
                return false;
            }
        }
        return opened.isEmpty() && closed.isEmpty() && broken.length == 0;
    }

    /// Writes the frame; costs nothing on a step in which nobody has anything to say.
    Payload encode(WireWriter out) {
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
            out.bool(open.drain);
        }
        out.i32(closed.size());
        for (var id : closed) {
            id.write(out);
        }
        return out.ints(broken).toPayload(VERSION);
    }

    /// @throws KvFerryException PROTOCOL on bytes that no composite with `count` children wrote,
    ///   INCOMPATIBLE on those of another release
    static CompositePayload decode(Payload payload, int count) {
        var frame = empty(count);
        if (payload.isEmpty()) {
            return frame;
        }
        if (payload.version() != VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "MultiConnector payload of version "
                            + payload.version()
                            + ", this side reads "
                            + VERSION
                            + "; run the same release of kvferry on all ranks");
        }
        var in = payload.reader();
        for (int n = in.count(12); n > 0; n--) {
            int child = child(in, count);
            int version = in.i32();
            frame.children[child] = new Payload(version, in.bytes());
        }
        var opened = new ArrayList<Open>();
        for (int n = in.count(31); n > 0; n--) {
            opened.add(
                    new Open(
                            TransferId.read(in), child(in, count), TransferId.read(in), in.bool()));
        }
        var closed = new ArrayList<TransferId>();
        for (int n = in.count(13); n > 0; n--) {
            closed.add(TransferId.read(in));
        }
        var broken = in.ints();
        in.end();
        for (int child : broken) {
            checked(child, count);
        }
        return new CompositePayload(frame.children, opened, closed, broken);
    }

    private static int child(WireReader in, int count) {
        return checked(in.i32(), count);
    }

    private static int checked(int child, int count) {
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
