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
import io.kvferry.spi.transfer.Registration;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

/// Memory and descriptor lists on all backends at once. Files, objects and volumes have a device
/// number of the agent, which stands for each backend's own.
///
/// Threading: any thread.
final class MemoryTable {
    private final Slots slots;
    private final Map<Long, MemoryHandle> byDevice = new ConcurrentHashMap<>();
    private final AtomicLong devices = new AtomicLong();

    MemoryTable(Slots slots) {
        this.slots = slots;
    }

    /// @param only these backends, all of which must take it; empty for all that do
    MemoryHandle register(MemoryRange range, Set<String> only) {
        var registrations = new LinkedHashMap<String, Registration>();
        var refused = new LinkedHashMap<String, Failure>();
        for (var slot : chosen(range.kind(), only)) {
            try {
                registrations.put(
                        slot.name(), slot.call("register", backend -> backend.register(range)));
            } catch (RuntimeException e) { // the border to the backend
                refused.put(slot.name(), Failure.of(e));
                if (!only.isEmpty()) {
                    break;
                }
            }
        }
        if (registrations.isEmpty() || (!only.isEmpty() && !refused.isEmpty())) {
            closeAll(registrations);
            throw refusal(range, refused);
        }
        long device =
                switch (range) {
                    case MemoryRange.Host _ -> 0;
                    case MemoryRange.Device onDevice -> onDevice.device();
                    case MemoryRange.FileRange _,
                            MemoryRange.ObjectRange _,
                            MemoryRange.VolumeRange _ ->
                            devices.incrementAndGet();
                };
        var handle = new MemoryHandle(range, device, registrations, refused, this::close);
        if (translated(range.kind())) {
            byDevice.put(device, handle);
        }
        return handle;
    }

    private List<BackendSlot> chosen(MemoryKind kind, Set<String> only) {
        return only.isEmpty()
                ? slots.all().stream().filter(slot -> slot.takes(kind)).toList()
                : only.stream().sorted().map(slots::get).toList();
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

    private void close(MemoryHandle handle) {
        if (translated(handle.memory().kind())) {
            byDevice.remove(handle.device());
        }
        closeAll(handle.registrations());
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

    PreparedList prepare(Optional<PeerId> peer, DescriptorList descriptors) {
        var entries = new LinkedHashMap<String, PreparedList.Entry>();
        var refused = new LinkedHashMap<String, Failure>();
        for (var slot : slots.all()) {
            if (!slot.takes(descriptors.kind()) || (peer.isPresent() && !slot.reachesPeers())) {
                continue;
            }
            try {
                var own =
                        peer.isEmpty() && translated(descriptors.kind())
                                ? translate(slot.name(), descriptors)
                                : descriptors;
                entries.put(
                        slot.name(),
                        slot.call(
                                "prepare",
                                backend -> {
                                    long guess = CostBook.guess(own.bytes());
                                    return new PreparedList.Entry(
                                            backend.prepare(peer, own),
                                            backend.estimateNanos(
                                                            Operation.READ,
                                                            peer,
                                                            own.count(),
                                                            own.bytes())
                                                    .orElse(guess),
                                            backend.estimateNanos(
                                                            Operation.WRITE,
                                                            peer,
                                                            own.count(),
                                                            own.bytes())
                                                    .orElse(guess));
                                }));
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
        return new PreparedList(descriptors, peer, entries, refused, this::close);
    }

    private DescriptorList translate(String backend, DescriptorList descriptors) {
        var own = DescriptorList.builder(descriptors.kind());
        for (int i = 0; i < descriptors.count(); i++) {
            var handle = byDevice.get(descriptors.device(i));
            var registration = handle == null ? null : handle.registrations().get(backend);
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

    private void close(PreparedList list) {
        list.entries()
                .forEach((name, entry) ->
                        slots.get(name)
                                .release("close of a prepared list", entry.prepared()::close));
    }
}
