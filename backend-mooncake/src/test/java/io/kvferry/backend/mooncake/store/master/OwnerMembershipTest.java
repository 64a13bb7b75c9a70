// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreRequests;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// What an owner's reports survive.
class OwnerMembershipTest {
    private static final Duration LONG = Duration.ofSeconds(50);
    private static final ListedOwner OWNER = new ListedOwner("s1", "127.0.0.1:20001", 1, 1000);

    private static void await(String what, BooleanSupplier condition) {
        var limit = Deadline.in(LONG);
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as(what).isFalse();
            LockSupport.parkNanos(5_000_000);
        }
    }

    private static List<Thread> asking() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("kvferry-owner-member"))
                .toList();
    }

    @Test
    void reportsThatCannotBeginLeaveNothing() {
        var before = asking();
        try (var master = StoreMaster.start(StoreMaster.Settings.local(0))) {
            var config = RemoteStoreConfig.of(master.address());
            assertThatThrownBy(() -> OwnerMembership.start(config, OWNER, NoThread::new))
                    .isInstanceOf(OutOfMemoryError.class);
            assertThat(MasterView.ask(config)).isEmpty();
            await(
                    "no thread is left",
                    () ->
                            asking().stream().filter(thread -> !before.contains(thread)).count()
                                    == 0);
        }
    }

    private static final class NoThread extends Thread {
        NoThread(Runnable task) {
            super(task);
        }

        @Override
        public void start() {
            throw new OutOfMemoryError("no thread");
        }
    }

    @Test
    void anOwnerStartsUnderAMasterWhoseAnswersAreNone() {
        var asked = new AtomicInteger();
        try (var requests =
                        new StoreRequests(
                                "test-master",
                                1,
                                1,
                                (_, _, _, _, _) -> {
                                    asked.incrementAndGet(); // without a word of how long
                                    return StoreCode.OK;
                                });
                var channel = new SideChannel("test-master", Optional.empty())) {
            String bound = channel.listen("127.0.0.1", "127.0.0.1", 0, 0, requests);
            var config = RemoteStoreConfig.of(bound.substring("tcp://".length()));
            try (var membership = OwnerMembership.start(config, OWNER)) {
                assertThat(membership.isListed()).isFalse();
                await("it is asked again", () -> asked.get() > 2);
            }
        }
    }
}
