// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.internal.PrivatePages;
import io.kvferry.backend.mooncake.te.internal.memory.Holders;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.metadata.Publisher;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedOwner;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedOwner.Pages;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.recovery.SharedClosing;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.IntConsumer;

/// The memory registered with an engine, its own and its callers'. A registration ends when the
/// memory is no longer in use; users that take too long are cut off.
///
/// Threading: any thread.
public final class Registrations {
    private static final Logger LOG = LoggerFactory.getLogger(Registrations.class);

    private final RegionTable regions;
    private final Holders holders;
    private final Optional<SharedOwner> shared;
    private final Publisher publisher;
    private final Duration patience;

    /// All that have not ended, including those whose start failed and which could not be ended
    /// because memory ran out.
    private final Set<Registration> open = ConcurrentHashMap.newKeySet();

    public Registrations(
            RegionTable regions,
            Holders holders,
            Optional<SharedOwner> shared,
            Publisher publisher,
            Duration patience) {
        this.regions = regions;
        this.holders = holders;
        this.shared = shared;
        this.publisher = publisher;
        this.patience = patience;
    }

    public RegisteredMemory register(MemorySegment memory, Access access) {
        if (!memory.isNative() || memory.byteSize() == 0 || memory.isReadOnly()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "only a non-empty, writable segment outside the Java heap can be registered, not "
                            + memory);
        }
        IntConsumer release = this::unlist; // before there is something to be released
        int offered = shared.isPresent() ? shared.get().open(memory, access) : Region.NOT_SHARED;
        return add(memory, offered, access, release);
    }

    private void unlist(int slot) {
        if (slot >= 0) {
            shared.orElseThrow().unlist(slot, patience);
        }
    }

    /// Shared memory that is registered like any other.
    public Optional<MemorySegment> offer(long bytes, Arena arena) {
        return shared.flatMap(owner -> owner.offer(bytes, arena));
    }

    /// Memory that is freed with its registration.
    public RegisteredMemory allocate(long bytes) {
        Arena arena = Arena.ofShared();
        boolean done = false;
        try {
            var allocated = allocate(bytes, Access.OPEN, arena, Optional.of(arena));
            done = true;
            return allocated;
        } finally {
            if (!done) {
                free(arena);
            }
        }
    }

    /// Memory that is freed with `arena`.
    public RegisteredMemory allocate(long bytes, Access access, Arena arena) {
        return allocate(bytes, access, arena, Optional.empty());
    }

    /// @param freed closed with the registration
    private RegisteredMemory allocate(
            long bytes, Access access, Arena arena, Optional<Arena> freed) {
        Optional<Pages> visible = shared.flatMap(owner -> owner.allocate(bytes, access, arena));
        if (visible.isPresent()) {
            Pages pages = visible.get();
            boolean released = false;
            try {
                IntConsumer release =
                        _ -> {
                            shared.orElseThrow().close(pages, freed.isEmpty(), patience);
                            freed.ifPresent(Registrations::free);
                        };
                released = true; // by the registration
                return add(pages.memory(), pages.slot(), access, release);
            } finally {
                if (!released) {
                    shared.orElseThrow().close(pages, freed.isEmpty(), patience);
                }
            }
        }
        return add(
                PrivatePages.allocate(bytes, arena),
                Region.NOT_SHARED,
                access,
                _ -> freed.ifPresent(Registrations::free));
    }

    /// A registration that did not begin is ended again, when its caller has freed the memory.
    private static void free(Arena arena) {
        if (arena.scope().isAlive()) {
            arena.close();
        }
    }

    /// @param release of the slot, also when this fails: peers see the memory no more then
    private RegisteredMemory add(
            MemorySegment memory, int sharedSlot, Access access, IntConsumer release) {
        boolean done = false;
        Registration registration = null;
        try {
            endUnowned();
            registration = new Registration(new Region(memory, sharedSlot, access), release);
            registration.begin();
            done = true;
            return registration;
        } finally {
            if (!done) {
                if (registration == null) {
                    release.accept(sharedSlot);
                } else {
                    registration.owned = false;
                    registration.close();
                }
            }
        }
    }

    /// Retries registrations whose start failed and which could not be ended then because memory
    /// ran out.
    private void endUnowned() {
        for (Registration registration : open) {
            if (!registration.owned) {
                endUnowned(registration);
            }
        }
    }

    private static void endUnowned(Registration registration) {
        try {
            registration.close();
        } catch (RuntimeException e) { // other registrations are not affected
            LOG.debug("a registration that did not begin has not ended", e);
        }
    }

    /// @throws KvFerryException the first one of [Registration#close], when all others are closed
    public void closeAll() {
        KvFerryException first = null;
        for (Registration registration : List.copyOf(open)) {
            try {
                registration.close();
            } catch (KvFerryException e) {
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

    /// One registration.
    private final class Registration implements RegisteredMemory {
        private final Region region;
        private final IntConsumer release;
        private final SharedClosing closing = new SharedClosing();

        /// Slot in the shared control page of memory that is not shared, -1 for none.
        private int listed = -1;

        /// False if the start failed, so that no caller closes it.
        private volatile boolean owned = true;

        Registration(Region region, IntConsumer release) {
            this.region = region;
            this.release = release;
        }

        void begin() {
            open.add(this); // until it has ended
            regions.add(region);
            // Memory of this process alone may still be copied by peers on this host.
            if (region.sharedSlot == Region.NOT_SHARED && shared.isPresent()) {
                listed = shared.get().list(region.address, region.bytes, region.access);
            }
            publisher.changed();
        }

        @Override
        public MemorySegment memory() {
            return region.memory;
        }

        @Override
        public boolean shared() {
            return region.sharedSlot != Region.NOT_SHARED;
        }

        @Override
        public void close() {
            closing.run(this::end);
        }

        private void end() {
            regions.remove(region);
            holders.drain(region.gate, patience);
            publisher.changed();
            if (listed >= 0) {
                shared.orElseThrow().unlist(listed, patience);
                listed = -1; // the slot may be reused from now on
            }
            release.accept(region.sharedSlot);
            open.remove(this);
        }
    }
}
