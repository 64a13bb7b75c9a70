// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/// Descriptors and transfers of [TransferBackendContract].
abstract class BackendTransferTests extends BackendContractSupport {
    @Test
    @DisplayName("C25 every claimed route moves exactly the bytes that its descriptors name")
    void everyClaimedRouteMovesItsBytes() {
        for (var route : claimed().routes()) {
            var sides = sides(route, 64 * UNIT);
            var data = random(64 * UNIT, 25);
            fill(source(sides), data);
            var random = new Random(26);
            var local = DescriptorList.builder(route.local());
            var remote = DescriptorList.builder(route.remote());
            var expected = contents(target(sides));
            boolean reading = route.operation() == Operation.READ;
            for (int i = 0; i < 20; i++) {
                long length = UNIT * (1 + random.nextInt(2));
                long near = 3 * UNIT * i;
                long far = 3 * UNIT * (19 - i); // another order on the other side
                local.add(
                        sides.local().registration().device(),
                        sides.local().registration().address() + near,
                        length);
                remote.add(
                        sides.remote().registration().device(),
                        sides.remote().registration().address() + far,
                        length);
                System.arraycopy(
                        data,
                        (int) (reading ? far : near),
                        expected,
                        (int) (reading ? near : far),
                        (int) length);
            }
            var list = local.build();
            var done = done(submit(sides, list, remote.build()));
            assertThat(done.bytes()).as(route.toString()).isEqualTo(list.bytes());
            assertThat(done.nanos()).isNotNegative();
            assertThat(done.applied()).isEqualTo(has(Feature.APPLIED_ON_COMPLETION));
            holds(target(sides), expected);
        }
    }

    @Test
    @DisplayName("C26a strided descriptors move the same bytes as single ones")
    void stridedDescriptorsMoveTheSameBytes() {
        var route = anyRoute();
        var sides = sides(route, 32 * UNIT);
        var data = random(32 * UNIT, 27);
        fill(source(sides), data);
        var near = sides.local().registration();
        var far = sides.remote().registration();
        var local =
                DescriptorList.builder(route.local())
                        .addStrided(near.device(), near.address(), UNIT, 2 * UNIT, 16);
        var remote =
                DescriptorList.builder(route.remote())
                        .addStrided(far.device(), far.address(), UNIT, 2 * UNIT, 16);
        var expected = contents(target(sides));
        for (int i = 0; i < 16; i++) {
            System.arraycopy(
                    data, (int) (2 * UNIT * i), expected, (int) (2 * UNIT * i), (int) UNIT);
        }
        done(submit(sides, local.build(), remote.build()));
        holds(target(sides), expected);
    }

    @Test
    @DisplayName(
            "C26b any part of prepared lists can be posted, in any order; an index out of range is refused")
    void partsOfPreparedListsArePosted() {
        var route = anyRoute();
        var sides = sides(route, 16 * UNIT);
        var data = random(16 * UNIT, 29);
        fill(source(sides), data);
        var near = sides.local().registration();
        var far = sides.remote().registration();
        var local =
                sides.prepareLocal(
                        DescriptorList.builder(route.local())
                                .addStrided(near.device(), near.address(), UNIT, UNIT, 16)
                                .build());
        var remote =
                sides.prepareRemote(
                        DescriptorList.builder(route.remote())
                                .addStrided(far.device(), far.address(), UNIT, UNIT, 16)
                                .build());
        int[] some = {3, 11, 0};
        var expected = contents(target(sides));
        for (int i : some) {
            System.arraycopy(data, (int) (UNIT * i), expected, (int) (UNIT * i), (int) UNIT);
        }
        var backend = sides.near().backend;
        done(
                backend.submit(
                        new TransferRequest(
                                route.operation(),
                                backend.select(local, some),
                                backend.select(remote, some),
                                soon())));
        holds(target(sides), expected);
        refuses(
                () -> backend.select(local, new int[] {16}),
                "an index out of range",
                ErrorCode.INVALID_REQUEST);
    }

    @Test
    @DisplayName("C27 sides that do not match are refused before anything is started")
    void refusesSidesThatDoNotMatch() {
        var sides = sides(anyRoute(), 8 * UNIT);
        var before = contents(target(sides));
        fill(source(sides), random(8 * UNIT, 28));
        refuses(
                () -> submit(sides, sides.local().part(0, UNIT), sides.remote().part(0, 2 * UNIT)),
                "other lengths",
                ErrorCode.INVALID_REQUEST);
        var two =
                DescriptorList.builder(sides.route().remote())
                        .add(
                                sides.remote().registration().device(),
                                sides.remote().registration().address(),
                                UNIT)
                        .add(
                                sides.remote().registration().device(),
                                sides.remote().registration().address() + 2 * UNIT,
                                UNIT)
                        .build();
        refuses(
                () -> submit(sides, sides.local().part(0, 2 * UNIT), two),
                "other counts",
                ErrorCode.INVALID_REQUEST);
        if (sides.peer().isPresent()) {
            var local = sides.prepareLocal(sides.local().part(0, UNIT));
            var remote = sides.prepareRemote(sides.remote().part(0, UNIT));
            refuses(
                    () ->
                            sides.near()
                                    .backend
                                    .submit(
                                            new TransferRequest(
                                                    sides.route().operation(),
                                                    remote,
                                                    local,
                                                    soon())),
                    "swapped sides",
                    ErrorCode.INVALID_REQUEST);
        }
        assertThat(contents(target(sides))).isEqualTo(before);
    }

    @Test
    @DisplayName("C28 a route that is not claimed is refused")
    void refusesRoutesThatAreNotClaimed() {
        var near = agent();
        var kinds =
                near.backend.capabilities().routes().stream()
                        .flatMap(route -> List.of(route.local(), route.remote()).stream())
                        .distinct()
                        .toList();
        for (var local : kinds) {
            for (var remote : kinds) {
                for (var operation : Operation.values()) {
                    var route = new Route(operation, local, remote, Route.Scope.LOOPBACK);
                    if (!claimed().routes().contains(route)) {
                        var sides =
                                new Sides(
                                        near,
                                        near.area(local, UNIT),
                                        near.area(remote, UNIT),
                                        route);
                        refuses(
                                () -> submit(sides, sides.local().whole(), sides.remote().whole()),
                                "unclaimed " + route,
                                ErrorCode.UNSUPPORTED,
                                ErrorCode.INVALID_REQUEST);
                    }
                }
            }
        }
    }

    @Test
    @DisplayName("C29 ranges outside of what is registered, or across two regions, are not found")
    void refusesRangesThatAreNotCovered() {
        var sides = sides(anyRoute(), 4 * UNIT);
        refuses(
                () -> sides.prepareLocal(sides.local().part(2 * UNIT, 4 * UNIT)),
                "past the end",
                ErrorCode.NOT_FOUND);
        refuses(
                () -> sides.prepareRemote(sides.remote().part(-UNIT, 2 * UNIT)),
                "before the start",
                ErrorCode.NOT_FOUND);
        refuses(
                () -> sides.prepareRemote(sides.remote().part(0, Long.MAX_VALUE - UNIT)),
                "huge",
                ErrorCode.NOT_FOUND);
        var other = sides.near().area(sides.route().local(), 4 * UNIT);
        long first =
                Math.min(sides.local().registration().address(), other.registration().address());
        long last =
                Math.max(sides.local().registration().address(), other.registration().address());
        if (sides.local().registration().device() == other.registration().device()) {
            var across =
                    DescriptorList.of(
                            sides.route().local(),
                            other.registration().device(),
                            first,
                            last - first + UNIT);
            refuses(() -> sides.prepareLocal(across), "across two regions", ErrorCode.NOT_FOUND);
        }
    }

    @Test
    @DisplayName(
            "C31 prepared lists are posted again and again, also while earlier posts are active")
    void preparedListsArePostedAgain() {
        var sides = sides(anyRoute(), 16 * UNIT);
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        var active = new ArrayList<Transfer>();
        var data = random(16 * UNIT, 31);
        fill(source(sides), data);
        for (int i = 0; i < 8; i++) {
            active.add(
                    sides.near()
                            .backend
                            .submit(
                                    new TransferRequest(
                                            sides.route().operation(), local, remote, soon())));
        }
        active.forEach(this::done);
        holds(target(sides), data);
    }

    @Test
    @DisplayName("C33 closing prepared lists does not harm transfers under way")
    void closingPreparedListsHarmsNothing() {
        var sides = sides(anyRoute(), 16 * UNIT);
        var data = random(16 * UNIT, 33);
        fill(source(sides), data);
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        var transfer =
                sides.near()
                        .backend
                        .submit(
                                new TransferRequest(
                                        sides.route().operation(), local, remote, soon()));
        local.close();
        remote.close();
        local.close();
        done(transfer);
        holds(target(sides), data);
    }
}
