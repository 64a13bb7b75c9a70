// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.TypedCommand;
import io.kvferry.backend.mooncake.store.master.MasterView;
import io.kvferry.backend.mooncake.store.master.OwnerMembership;
import io.kvferry.backend.mooncake.store.master.StoreMaster;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;

/// What an operator hears who says that an owner is gone for good.
class StoreForgetOwnerTest {
    private static final String NEVER_THERE = "127.0.0.1:9";

    @TempDir Path folder;

    private static TypedCommand typed(String master, String owner, boolean undo) {
        return TypedCommand.of(
                new StoreForgetOwnerCommand(),
                Map.of("store", "master://" + master, "undo", undo),
                owner);
    }

    private static String run(TypedCommand typed) throws InterruptedException {
        assertThat(typed.run()).isZero();
        return typed.printed().toString();
    }

    private static String run(String master, String owner, boolean undo)
            throws InterruptedException {
        return run(typed(master, owner, undo));
    }

    private StoreMaster master() {
        return StoreMaster.start(
                new StoreMaster.Settings(
                        "127.0.0.1",
                        0,
                        Duration.ofMinutes(1),
                        Optional.empty(),
                        false,
                        Optional.of(folder.resolve("forgotten"))));
    }

    @Test
    void whatIsNoAddressIsRefusedAndNotKept() {
        try (var master = master()) {
            for (String word :
                    List.of(
                            "nonsense",
                            "",
                            " ",
                            "127.0.0.1",
                            "127.0.0.1:",
                            ":50053",
                            "127.0.0.1:0",
                            "127.0.0.1:65536",
                            "127.0.0.1:port",
                            "127.0.0.1:1/x",
                            "127.0.0.1:1?x",
                            "me@127.0.0.1:1",
                            "master://127.0.0.1:1",
                            "two words:1")) {
                for (boolean undo : new boolean[] {false, true}) {
                    assertThatThrownBy(() -> run(master.address(), word, undo))
                            .as(word)
                            .hasMessageContaining("'" + word + "'")
                            .hasMessageContaining("give host:port")
                            .isInstanceOfSatisfying(
                                    KvFerryException.class,
                                    e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG));
                }
            }
            assertThat(folder.resolve("forgotten")).doesNotExist();
        }
    }

    @Test
    void itSaysWhetherTheMasterHadListedTheOwner() throws Exception {
        try (var master = master();
                var owner = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
                var membership = OwnerMembership.start(at(master), owner)) {
            for (var limit = Deadline.in(Duration.ofSeconds(50)); !membership.isListed(); ) {
                assertThat(limit.passed()).as("listed").isFalse();
                LockSupport.parkNanos(5_000_000);
            }
            assertThat(run(master.address(), owner.address(), false))
                    .isEqualToNormalizingNewlines(
                            "owner "
                                    + owner.address()
                                    + " is forgotten, it was listed until now\n");
            assertThat(MasterView.ask(at(master))).isEmpty();
            assertThat(run(master.address(), owner.address(), false))
                    .contains("was forgotten already");
            assertThat(run(master.address(), NEVER_THERE, false))
                    .contains(NEVER_THERE + " is forgotten, but the master did not list it");
            assertThat(Files.readAllLines(folder.resolve("forgotten")))
                    .anySatisfy(line -> assertThat(line).startsWith(NEVER_THERE + "\t"));
            assertThat(run(typed(master.address(), NEVER_THERE, false).asJson()))
                    .isEqualToNormalizingNewlines(
                            "{\"owner\":\"127.0.0.1:9\",\"before\":\"forgotten\",\"forgotten\":true}\n");
            assertThat(run(master.address(), NEVER_THERE, true)).contains("may come back");
        }
    }

    @Test
    void anOwnerIsNoMaster() {
        try (var owner = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20))) {
            assertThatThrownBy(() -> run(owner.address(), NEVER_THERE, false))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("NOT_SUPPORTED");
        }
    }

    private static RemoteStoreConfig at(StoreMaster master) {
        return RemoteStoreConfig.of(master.address());
    }
}
