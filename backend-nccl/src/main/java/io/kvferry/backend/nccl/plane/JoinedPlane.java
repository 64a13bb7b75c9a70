// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/// The planes of one worker, best first. A transfer uses the first one that its sender and its
/// receiver both have; a window is open on all of them until a sender connects to one.
///
/// With the host plane alone the address is that plane's. Otherwise it lists the address of each
/// plane with its kind: `nccl=10.0.0.1:4001,host=10.0.0.1:4000`.
///
/// Threading: any thread.
public final class JoinedPlane implements DataPlane {
    private static final String HOST = "host";
    private static final int MOST_ADDRESS = 1024;

    private final List<DataPlane> planes;

    /// @param planes of different kinds, at least one; closed with this one
    public JoinedPlane(List<DataPlane> planes) {
        this.planes = List.copyOf(planes);
    }

    @Override
    public String kind() {
        return planes.stream().map(DataPlane::kind).collect(Collectors.joining("+"));
    }

    /// Those that take something, or all where none does: that is an outcome too.
    private List<DataPlane> working() {
        var working = planes.stream().filter(plane -> plane.trouble().isEmpty()).toList();
        return working.isEmpty() ? planes : working;
    }

    @Override
    public Optional<String> trouble() {
        var all = planes.stream().flatMap(plane -> plane.trouble().stream()).toList();
        return all.isEmpty() ? Optional.empty() : Optional.of(String.join("; ", all));
    }

    @Override
    public String address() {
        if (planes.size() == 1 && planes.getFirst().kind().equals(HOST)) {
            return planes.getFirst().address();
        }
        return working().stream()
                .map(plane -> plane.kind() + "=" + plane.address())
                .collect(Collectors.joining(","));
    }

    @Override
    public Map<String, Long> takeReceived() {
        var all = new HashMap<String, Long>();
        planes.forEach(plane -> all.putAll(plane.takeReceived()));
        return all;
    }

    /// Addresses by kind.
    private static Map<String, String> parse(String address) {
        var kinds = new HashMap<String, String>();
        if (address.length() <= MOST_ADDRESS) {
            for (var part : address.split(",", -1)) {
                int equals = part.indexOf('=');
                kinds.put(
                        equals < 0 ? HOST : part.substring(0, equals), part.substring(equals + 1));
            }
        }
        return kinds;
    }

    @Override
    public Window receive(Grant grant, Placement target, Deadline deadline, Consumer<Outcome> end) {
        var takers = working();
        if (takers.size() == 1) {
            return takers.getFirst().receive(grant, target, deadline, end);
        }
        var window = new JoinedWindow(takers.size(), end);
        for (var plane : takers) {
            window.add(plane.receive(grant, target, deadline, window::ended));
        }
        return window;
    }

    @Override
    public Sending send(
            String receiver,
            Grant grant,
            Placement source,
            Deadline deadline,
            Consumer<Outcome> end) {
        var theirs = parse(receiver);
        DataPlane chosen = null;
        for (var plane : planes) {
            var address = theirs.get(plane.kind());
            if (address != null && (chosen == null || refuses(chosen, theirs))) {
                chosen = plane;
            }
        }
        if (chosen == null) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "the receiver's data plane is %s, this side's %s: see option data_plane"
                            .formatted(theirs.keySet(), kind()));
        }
        return chosen.send(theirs.getOrDefault(chosen.kind(), ""), grant, source, deadline, end);
    }

    private static boolean refuses(DataPlane plane, Map<String, String> theirs) {
        return plane.refuses(theirs.getOrDefault(plane.kind(), ""));
    }

    @Override
    public void close() {
        KvFerryException first = null;
        for (var plane : planes) {
            try {
                plane.close();
            } catch (KvFerryException e) { // the others must be closed as well
                if (first == null) {
                    first = e;
                } else {
                    first.addSuppressed(e);
                }
            }
        }
        if (first != null) {
            throw first;
        }
    }

    /// One window on several planes. The first that is filled, or fails, withdraws the others. The
    /// end is reported when all have ended.
    private static final class JoinedWindow implements Window {
        private final Consumer<Outcome> end;
        private final ReentrantLock lock = new ReentrantLock();
        private final AtomicReferenceArray<@Nullable Window> windows;
        private int added;
        private int open;
        private boolean decided;
        private boolean unusedWithdrawn;
        private @Nullable Outcome outcome;

        JoinedWindow(int planes, Consumer<Outcome> end) {
            this.windows = new AtomicReferenceArray<>(planes);
            this.open = planes;
            this.end = end;
        }

        void add(Window window) {
            boolean late;
            lock.lock();
            try {
                windows.set(added++, window);
                late = decided;
            } finally {
                lock.unlock();
            }
            if (late) {
                window.withdraw();
            }
        }

        void ended(Outcome how) {
            boolean first = false;
            Outcome last = null;
            lock.lock();
            try {
                open--;
                boolean unused =
                        unusedWithdrawn
                                && how instanceof Outcome.Failed(var failure)
                                && failure.code() == ErrorCode.TIMEOUT;
                if (how instanceof Outcome.Done || !decided && !unused || outcome == null) {
                    outcome = how;
                }
                if (!decided && !unused) {
                    decided = true;
                    first = true;
                }
                last = open == 0 ? outcome : null;
            } finally {
                lock.unlock();
            }
            if (first) {
                withdraw();
            }
            if (last != null) {
                end.accept(last);
            }
        }

        /// Needs no memory.
        @Override
        public void withdraw() {
            for (int i = 0; i < windows.length(); i++) {
                var window = windows.get(i);
                if (window != null) {
                    window.withdraw();
                }
            }
        }

        @Override
        public void withdrawUnused() {
            lock.lock();
            try {
                unusedWithdrawn = true;
            } finally {
                lock.unlock();
            }
            for (int i = 0; i < windows.length(); i++) {
                var window = windows.get(i);
                if (window != null) {
                    window.withdrawUnused();
                }
            }
        }
    }
}
