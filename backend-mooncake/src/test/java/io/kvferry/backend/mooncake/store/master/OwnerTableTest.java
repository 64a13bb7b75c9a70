// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;

/// Which owners are listed, by a clock that is moved.
class OwnerTableTest {
    private static final Duration TTL = Duration.ofSeconds(10);

    private final AtomicLong nanos = new AtomicLong(Long.MAX_VALUE - TTL.toNanos() / 2);
    private final OwnerTable table = table(Optional.empty());

    @TempDir Path folder;

    private OwnerTable table(Optional<Path> file) {
        return new OwnerTable(TTL, nanos::get, new ForgottenOwners(file));
    }

    private static ListedOwner owner(String segment, String address, long epoch) {
        return new ListedOwner(segment, address, epoch, 1 << 20);
    }

    private static ListedOwner owner(int number, long epoch) {
        return owner("s" + number, "127.0.0.1:" + (1000 + number), epoch);
    }

    private void pass(Duration time) {
        nanos.addAndGet(time.toNanos());
    }

    @Test
    void anOwnerIsListedAsLongAsItGivesSignsOfLife() {
        var first = owner(1, 5);
        var second = owner(2, 5);
        assertThat(table.register(first)).isEqualTo(StoreCode.OK);
        assertThat(table.register(second)).isEqualTo(StoreCode.OK);
        for (int i = 0; i < 5; i++) {
            pass(TTL.dividedBy(2).plusNanos(1));
            long before = table.snapshot().version();
            assertThat(table.register(first)).isEqualTo(StoreCode.OK);
            assertThat(table.snapshot().owners()).contains(first);
            if (i > 2) {
                assertThat(table.snapshot().version()).as("a sign of life").isEqualTo(before);
            }
        }
        assertThat(table.snapshot().owners()).containsExactly(first);
        assertThat(table.expired()).isOne();
        pass(TTL);
        assertThat(table.snapshot().owners()).isEmpty();
    }

    @Test
    void aLaterLifeReplacesTheOldOneAtOnce() {
        var old = owner(1, 5);
        var later = owner(1, 6);
        table.register(old);
        long version = table.snapshot().version();
        assertThat(table.register(later)).isEqualTo(StoreCode.OK);
        assertThat(table.snapshot().owners()).containsExactly(later);
        assertThat(table.snapshot().version()).isGreaterThan(version);
        assertThat(table.register(old))
                .as("it does not come back")
                .isEqualTo(StoreCode.SEGMENT_ALREADY_EXISTS);
        assertThat(table.refused()).isOne();
        table.leave(old);
        assertThat(table.snapshot().owners()).as("nor takes it away").containsExactly(later);
    }

    @Test
    void anOlderLifeIsListedWhenTheLaterOneIsGone() {
        table.register(owner(1, 6));
        pass(TTL);
        var old = owner(1, 5);
        assertThat(table.register(old)).as("its clock was set back").isEqualTo(StoreCode.OK);
        assertThat(table.snapshot().owners()).containsExactly(old);
    }

    @Test
    void aNameAndAnAddressAreThoseOfOneOwner() {
        table.register(owner("s1", "h:1", 5));
        table.register(owner("s2", "h:2", 5));
        assertThat(table.register(owner("s3", "h:1", 4)))
                .isEqualTo(StoreCode.SEGMENT_ALREADY_EXISTS);
        assertThat(table.register(owner("s1", "h:3", 5)))
                .as("of one epoch the first")
                .isEqualTo(StoreCode.SEGMENT_ALREADY_EXISTS);
        var both = owner("s1", "h:2", 6);
        assertThat(table.register(both)).isEqualTo(StoreCode.OK);
        assertThat(table.snapshot().owners()).containsExactly(both);
    }

    @Test
    void anOwnerThatEndsIsNotListed() {
        var owner = owner(1, 5);
        table.register(owner);
        table.leave(owner);
        assertThat(table.snapshot().owners()).isEmpty();
        assertThat(table.expired()).isZero();
    }

    /// Reports come on connections of their own, so the last may be read after the goodbye.
    @Test
    void aLifeThatHasLeftIsNotListedAgain() {
        var owner = owner(1, 5);
        table.leave(owner);
        assertThat(table.register(owner)).isEqualTo(StoreCode.SEGMENT_ALREADY_EXISTS);
        assertThat(table.snapshot().owners()).isEmpty();
        assertThat(table.register(owner(1, 4)))
                .as("another life, though its clock was set back")
                .isEqualTo(StoreCode.OK);
    }

    @Test
    void theListIsWholeWhenEveryOwnerHadItsTime() {
        var first = table.snapshot();
        assertThat(first.whole()).isFalse();
        pass(TTL);
        var later = table.snapshot();
        assertThat(later.whole()).isTrue();
        assertThat(later.version()).as("which users hear of").isGreaterThan(first.version());
        assertThat(table(Optional.empty()).snapshot().life()).isNotEqualTo(later.life());
    }

    @Test
    void aForgottenOwnerIsNotListedUnderAnyLife() {
        var listed = owner(1, 5);
        table.register(listed);
        long version = table.snapshot().version();
        assertThat(table.forget("s1")).isEqualTo(StoreCode.OK);
        assertThat(table.snapshot().owners()).isEmpty();
        assertThat(table.snapshot().forgotten()).containsExactly("s1");
        assertThat(table.snapshot().version()).isGreaterThan(version);
        for (long epoch : new long[] {5, 4, 7}) {
            assertThat(table.register(owner(1, epoch))).isEqualTo(StoreCode.SEGMENT_NOT_FOUND);
        }
        assertThat(table.register(owner(2, 5))).as("another").isEqualTo(StoreCode.OK);
        assertThat(table.snapshot().owners()).containsExactly(owner(2, 5));
    }

    @Test
    void aRecalledOwnerComesBackWithALaterLifeOnly() {
        table.register(owner(1, 5));
        assertThat(table.recall("s1")).as("it is there").isEqualTo(StoreCode.SEGMENT_NOT_FOUND);
        table.forget("s1");
        table.register(owner(1, 7));
        assertThat(table.recall("s1")).isEqualTo(StoreCode.OK);
        assertThat(table.snapshot().forgotten()).isEmpty();
        for (long epoch : new long[] {5, 6, 7}) {
            assertThat(table.register(owner(1, epoch))).isEqualTo(StoreCode.SEGMENT_NOT_FOUND);
        }
        assertThat(table.register(owner(1, 8))).isEqualTo(StoreCode.OK);
        pass(TTL);
        assertThat(table.register(owner(1, 7)))
                .as("nor when that one is gone")
                .isEqualTo(StoreCode.SEGMENT_NOT_FOUND);
    }

    @Test
    void aFileKeepsThemOverLivesOfTheMaster() throws Exception {
        var file = Optional.of(folder.resolve("forgotten"));
        var first = table(file);
        first.register(owner(1, 5));
        first.forget("s1");
        first.forget("s2");
        first.recall("s2");
        var second = table(file);
        assertThat(second.snapshot().forgotten()).containsExactly("s1");
        assertThat(second.register(owner(1, 9))).isEqualTo(StoreCode.SEGMENT_NOT_FOUND);
        assertThat(second.register(owner(2, 1))).isEqualTo(StoreCode.OK);
        Files.writeString(file.get(), "s1\n");
        assertThatThrownBy(() -> table(file))
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.IO));
    }

    @Test
    void whatCannotBeKeptIsNotForgotten() {
        var nowhere = table(Optional.of(folder.resolve("none").resolve("forgotten")));
        nowhere.register(owner(1, 5));
        assertThatThrownBy(() -> nowhere.forget("s1")).isInstanceOf(KvFerryException.class);
        assertThat(nowhere.snapshot().owners()).containsExactly(owner(1, 5));
        assertThat(nowhere.snapshot().forgotten()).isEmpty();
    }

    @Test
    void thereIsABoundOfForgottenOwners() {
        var forgotten = new ForgottenOwners(Optional.empty());
        for (int i = 0; i < ForgottenOwners.MOST; i++) {
            assertThat(forgotten.forget("s" + i, 1)).isTrue();
        }
        assertThat(forgotten.forget("one more", 1)).isFalse();
        assertThat(forgotten.forget("s3", 1)).as("one that is known").isTrue();
    }

    @Test
    void thereIsABoundOfOwners() {
        for (int i = 0; i < OwnerTable.MOST_OWNERS; i++) {
            assertThat(table.register(owner(i, 5))).isEqualTo(StoreCode.OK);
        }
        assertThat(table.register(owner(OwnerTable.MOST_OWNERS, 5)))
                .isEqualTo(StoreCode.BUFFER_OVERFLOW);
        assertThat(table.register(owner(3, 6))).as("one that is listed").isEqualTo(StoreCode.OK);
        assertThat(table.snapshot().owners()).hasSize(OwnerTable.MOST_OWNERS);
    }
}
