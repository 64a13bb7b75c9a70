// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.TransferBackend;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiFunction;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/// Memory and descriptor lists on all backends at once. Files, objects and volumes have a device
/// number of the agent, which stands for each backend's own.
///
/// Threading: any thread.
final class MemoryTable {
    private final OpenBackends slots;
    private final Map<Long, Area> byDevice = new ConcurrentHashMap<>();
    private final AtomicLong devices = new AtomicLong();

    MemoryTable(OpenBackends slots) {
        this.slots = slots;
    }

    /// Registers with every backend that takes this kind of memory, at least one.
    Area register(MemoryRange range) {
        var registrations = new LinkedHashMap<String, Registration>();
        var refused = new LinkedHashMap<String, Failure>();
        for (var slot : slots.all()) {
            if (slot.takes(range.kind())) {
                try {
                    registrations.put(
                            slot.name(),
                            slot.make(
                                    "register",
                                    backend -> backend.register(range),
                                    Registration::close));
                } catch (RuntimeException e) { // the border to the backend
                    refused.put(slot.name(), Failure.of(e));
                }
            }
        }
        if (registrations.isEmpty()) {
            throw refusal(range, refused);
        }
        long device =
                switch (range) {
                    case MemoryRange.Host _ -> 0;
                    case MemoryRange.Device onDevice -> onDevice.device().ordinal();
                    case MemoryRange.FileRange _,
                            MemoryRange.ObjectRange _,
                            MemoryRange.VolumeRange _ ->
                            devices.incrementAndGet();
                };
        var area = new Area(range, device, registrations, refused);
        if (translated(range.kind())) {
            byDevice.put(device, area);
        }
        return area;
    }

    /// Memory registered with one or more backends. Closing it forgets it on all of them.
    final class Area implements Registration {
        private final MemoryRange memory;
        private final long device;
        private final Map<String, Registration> registrations;
        private final Map<String, Failure> refused;
        private final AtomicBoolean closed = new AtomicBoolean();

        private Area(
                MemoryRange memory,
                long device,
                Map<String, Registration> registrations,
                Map<String, Failure> refused) {
            this.memory = memory;
            this.device = device;
            this.registrations = Map.copyOf(registrations);
            this.refused = Map.copyOf(refused);
        }

        @Override
        public MemoryRange memory() {
            return memory;
        }

        /// For a file, object or volume an id of the agent.
        @Override
        public long device() {
            return device;
        }

        @Override
        public long address() {
            return registrations.values().iterator().next().address();
        }

        /// The backends that take this kind of memory and refused this piece.
        Map<String, Failure> refused() {
            return refused;
        }

        @Override
        public void close() {
            if (closed.compareAndSet(false, true)) {
                if (translated(memory.kind())) {
                    byDevice.remove(device);
                }
                closeAll(registrations);
            }
        }
    }

    private KvFerryException refusal(MemoryRange range, Map<String, Failure> refused) {
        if (refused.isEmpty()) {
            return new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "no backend of this agent takes " + range.kind() + "; open: " + slots.names());
        }
        var first = refused.values().iterator().next();
        return new KvFerryException(
                first.code(),
                "cannot register "
                        + range.length()
                        + " bytes of "
                        + range.kind()
                        + ": "
                        + described(refused));
    }

    private static String described(Map<String, Failure> refused) {
        return refused.entrySet().stream()
                .map(entry -> entry.getKey() + " said " + entry.getValue())
                .collect(Collectors.joining("; "));
    }

    private void closeAll(Map<String, Registration> registrations) {
        RuntimeException first = null;
        for (var entry : registrations.entrySet()) {
            try {
                slots.get(entry.getKey()).release("deregister", entry.getValue()::close);
            } catch (RuntimeException e) { // every backend must get its turn
                first = first == null ? e : first;
            }
        }
        if (first != null) {
            throw first;
        }
    }

    private static boolean translated(MemoryKind kind) {
        return switch (kind) {
            case HOST, DEVICE -> false;
            case FILE, OBJECT, VOLUME -> true;
        };
    }

    /// Resolves a list on every backend that covers all of it, at least one.
    AgentPrepared prepare(Optional<PeerId> peer, DescriptorList descriptors) {
        return resolve(
                peer,
                descriptors,
                slot -> slot.takes(descriptors.kind()) && (peer.isEmpty() || slot.reachesPeers()),
                (slot, backend) ->
                        backend.prepare(
                                peer,
                                peer.isEmpty() && translated(descriptors.kind())
                                        ? translate(slot.name(), descriptors)
                                        : descriptors));
    }

    /// Takes ranges of a resolved list, on every backend that has it.
    AgentPrepared select(AgentPrepared all, int[] indices) {
        if (indices.length == 0) {
            throw new KvFerryException(ErrorCode.INVALID_REQUEST, "no descriptor is selected");
        }
        var whole = all.descriptors();
        var part = DescriptorList.builder(whole.kind());
        for (int index : indices) {
            if (index < 0 || index >= whole.count()) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "descriptor " + index + " of a list of " + whole.count());
            }
            part.add(whole.device(index), whole.address(index), whole.length(index));
        }
        return resolve(
                all.peer(),
                part.build(),
                slot -> all.on(slot.name()).isPresent(),
                (slot, backend) -> backend.select(all.require(slot.name()).prepared(), indices));
    }

    private AgentPrepared resolve(
            Optional<PeerId> peer,
            DescriptorList descriptors,
            Predicate<OpenBackend> asked,
            BiFunction<OpenBackend, TransferBackend, Prepared> resolver) {
        var entries = new LinkedHashMap<String, AgentPrepared.Entry>();
        var refused = new LinkedHashMap<String, Failure>();
        for (var slot : slots.all()) {
            if (!asked.test(slot)) {
                continue;
            }
            try {
                entries.put(
                        slot.name(),
                        slot.make(
                                "prepare",
                                backend ->
                                        entry(
                                                backend,
                                                resolver.apply(slot, backend),
                                                peer,
                                                descriptors),
                                entry -> slot.close(entry.prepared())));
            } catch (RuntimeException e) { // the border to the backend
                refused.put(slot.name(), Failure.of(e));
            }
        }
        if (entries.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND,
                    "no backend covers "
                            + descriptors
                            + peer.map(id -> " of " + id).orElse("")
                            + ": "
                            + (refused.isEmpty()
                                    ? "none takes this kind of memory"
                                    : described(refused)));
        }
        return new AgentPrepared(this, descriptors, peer, entries, refused);
    }

    /// With what the backend says a transfer of this size costs, so that choosing costs no call
    /// into a backend.
    private static AgentPrepared.Entry entry(
            TransferBackend backend,
            Prepared prepared,
            Optional<PeerId> peer,
            DescriptorList list) {
        long guess = TrackRecord.guess(list.bytes());
        return new AgentPrepared.Entry(
                prepared,
                backend.estimateNanos(Operation.READ, peer, list.count(), list.bytes())
                        .orElse(guess),
                backend.estimateNanos(Operation.WRITE, peer, list.count(), list.bytes())
                        .orElse(guess));
    }

    private DescriptorList translate(String backend, DescriptorList descriptors) {
        var own = DescriptorList.builder(descriptors.kind());
        for (int i = 0; i < descriptors.count(); i++) {
            var area = byDevice.get(descriptors.device(i));
            var registration = area == null ? null : area.registrations.get(backend);
            if (registration == null) {
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND,
                        "device "
                                + descriptors.device(i)
                                + " of range "
                                + i
                                + " is not registered with it");
            }
            own.add(registration.device(), descriptors.address(i), descriptors.length(i));
        }
        return own.build();
    }

    void close(AgentPrepared list) {
        list.entries().forEach((name, entry) -> slots.get(name).free(entry.prepared()));
    }
}
