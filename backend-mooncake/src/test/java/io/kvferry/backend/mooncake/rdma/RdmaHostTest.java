// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.TypedCommand;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Finding;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/// On trees of files in the kernel's form; this machine has no RDMA device.
class RdmaHostTest {
    @TempDir private Path folder;
    private SysfsTree tree;

    @BeforeEach
    void plant() {
        tree = new SysfsTree(folder);
    }

    private RdmaHost host() {
        return RdmaHost.at(folder);
    }

    private List<RnicPlan.Gpu> gpus(String csv) {
        return Gpus.parse(csv, host());
    }

    @Test
    void readsDevicesInTheOrderOfTheirNames() {
        tree.device("mlx5_1", "0000:b1:00.0", 1, "eth1", "eth0").software("rxe0").up("mlx5_1");
        tree.device("mlx5_0", "0000:17:00.1", -1);
        var devices = host().devices();
        assertThat(devices).extracting(RdmaDevice::name).containsExactly("mlx5_0", "mlx5_1");
        assertThat(devices.getFirst().pci()).hasToString("00000000:17:00.1");
        assertThat(devices.getFirst().numa()).isEqualTo(-1);
        assertThat(devices.get(1).numa()).isEqualTo(1);
        assertThat(devices.get(1).netdevs()).containsExactly("eth0", "eth1");
        assertThat(host().activeDevices(3)).isEqualTo("mlx5_1");
    }

    @Test
    void aMachineWithoutDevicesHasNone() {
        assertThat(host().isEmpty()).isTrue();
        assertThat(host().gidIndex()).isEmpty();
        assertThat(RdmaEnvironment.diagnose(host()).state()).isEqualTo(Finding.State.OPTIONAL);
    }

    @Test
    void aGlobalAddressOfRoceV2GoesBeforeAllElse() {
        tree.device("a", "0000:17:00.0", 0).up("a");
        assertThat(host().gidIndex()).hasValue(3);
        assertThat(RdmaEnvironment.diagnose(host()).found()).isEqualTo("a, GID index 3");
    }

    @Test
    void theIndexThatMostPortsHaveWinsAndOfEqualsTheLowest() {
        tree.device("a", "0000:17:00.0", 0).device("b", "0000:18:00.0", 0);
        tree.port("a", 1, "4: ACTIVE").port("b", 1, "4: ACTIVE");
        tree.gid("a", 1, 2, SysfsTree.GLOBAL, SysfsTree.V2, "e0");
        tree.gid("a", 1, 5, SysfsTree.GLOBAL, SysfsTree.V2, "e0");
        tree.gid("b", 1, 5, SysfsTree.GLOBAL, SysfsTree.V2, "e1");
        assertThat(host().gidIndex()).hasValue(5);
        tree.gid("b", 1, 2, SysfsTree.GLOBAL, SysfsTree.V2, "e1");
        assertThat(host().gidIndex()).as("equal").hasValue(2);
        tree.gid("b", 1, 2, SysfsTree.LINK_LOCAL, SysfsTree.V2, "e1");
        assertThat(host().gidIndex()).as("link-local counts for less").hasValue(5);
    }

    @Test
    void withoutRoceV2AnyAddressThatIsNotLinkLocalCounts() {
        tree.device("a", "0000:17:00.0", 0).port("a", 1, "4: ACTIVE");
        tree.gid("a", 1, 0, SysfsTree.LINK_LOCAL, SysfsTree.V2, "e0");
        assertThat(host().gidIndex()).as("the only one").hasValue(0);
        tree.gid("a", 1, 1, SysfsTree.GLOBAL, SysfsTree.V1, "e0");
        assertThat(host().gidIndex()).hasValue(1);
    }

    @Test
    void portsThatAreDownAndEntriesThatAreNotSetDoNotCount() {
        tree.device("a", "0000:17:00.0", 0).up("a").port("a", 1, "1: DOWN");
        assertThat(host().gidIndex()).isEmpty();
        tree.port("a", 1, "4: ACTIVE").gid("a", 1, 3, SysfsTree.GLOBAL, SysfsTree.V2, "");
        assertThat(host().gidIndex()).as("no interface at 3").hasValue(2);
        tree.gid("a", 1, 2, SysfsTree.ZERO, SysfsTree.V1, "eth0");
        assertThat(host().gidIndex()).as("zero at 2").hasValue(1);
    }

    @Test
    void aListIsCheckedEntryByEntry() {
        tree.device("a", "0000:17:00.0", 0).device("b", "0000:18:00.0", 0).up("a");
        host().check(" a ", 3);
        refused("a,,b", 3, "empty entry");
        refused("a,c", 3, "no RDMA device c; there are a, b");
        refused("a,b", 3, "b has no active port with the GID index 3");
        refused("a", 7, "a has no active port with the GID index 7");
    }

    private void refused(String list, int index, String why) {
        assertThatThrownBy(() -> host().check(list, index))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining(why);
    }

    private List<String> plan(String csv) {
        return RnicPlan.of(gpus(csv), host().devices()).lines().stream()
                .map(RnicPlan.Line::toString)
                .toList();
    }

    @Test
    void interfacesNamedAfterAGpuGoFirstThenTheNearestOfTheSameNode() {
        tree.device("far", "0000:90:00.0", 1);
        tree.device("named", "0000:f0:00.0", 1, "gpu1rdma0");
        tree.device("near", "0000:1a:00.0", 0).device("nearer", "0000:18:00.0", 0);
        tree.pci("0000:17:00.0", 0);
        tree.pci("0000:19:00.0", 0);
        tree.pci("0000:1b:00.0", 0);
        tree.pci("0000:1c:00.0", 0);
        String csv = "0, 00000000:17:00.0\n1, 00000000:19:00.0\n2, 00000000:1B:00.0\n3, 0:1c:0.0\n";
        assertThat(plan(csv))
                .containsExactly(
                        "0|00000000:17:00.0|0|nearer|same-numa-pci-distance",
                        "1|00000000:19:00.0|0|named|exact-netdev",
                        "2|00000000:1b:00.0|0|near|same-numa-pci-distance",
                        "3|00000000:1c:00.0|0|far|global-pci-distance");
        assertThat(RnicPlan.of(gpus(csv), host().devices()).clear()).isTrue();
    }

    @Test
    void ambiguousNamesAndTooFewDevicesAreNotClear() {
        tree.device("b", "0000:18:00.0", 0, "gpu0rdma1")
                .device("a", "0000:19:00.0", 0, "gpu0rdma0");
        assertThat(plan("0, 00000000:17:00.0"))
                .containsExactly("0|00000000:17:00.0|-1|a|ambiguous-exact-netdev");
        assertThat(plan("1, 00000000:17:00.0\n2, ?\n3, 00000000:17:00.0"))
                .containsExactly(
                        "1|00000000:17:00.0|-1|b|global-pci-distance",
                        "2||-1|a|global-pci-distance",
                        "3|00000000:17:00.0|-1||no-unused-rnic-match");
        assertThat(RnicPlan.of(gpus("0, ?"), host().devices()).clear()).isFalse();
    }

    @Test
    void distanceWeighsDomainBusDeviceAndFunction() {
        var here = PciAddress.of("0001:10:03.2");
        assertThat(PciAddress.distance(here, PciAddress.of("0003:0E:01.1")))
                .isEqualTo(2_000_000 + 2_000 + 20 + 1);
        assertThat(PciAddress.distance(here, PciAddress.of("pci"))).isEqualTo(1 << 30);
    }

    @Test
    void aCommandWithRdmaIsToldWhatToUse() {
        tree.device("a", "0000:17:00.0", 0).device("b", "0000:b0:00.0", 1).up("a").up("b");
        assertThat(environment(Map.of(), "0, 00000000:b1:00.0")).isEmpty();
        assertThat(environment(Map.of("MOONCAKE_PROTOCOL", "tcp"), "")).isEmpty();
        var rdma = Map.of("MOONCAKE_PROTOCOL", "rdma");
        assertThat(environment(rdma, "0, 00000000:b1:00.0\n1, 00000000:18:00.0"))
                .containsEntry("MC_GID_INDEX", "3")
                .containsEntry("MOONCAKE_DEVICE", "b,a")
                .containsEntry("MC_ENABLE_DEST_DEVICE_AFFINITY", "1");
        assertThat(environment(rdma, "")).as("no GPU").containsEntry("MOONCAKE_DEVICE", "a,b");
        assertThat(
                        environment(
                                Map.of(
                                        "MOONCAKE_PROTOCOL",
                                        "efa",
                                        "MOONCAKE_DEVICE",
                                        "b",
                                        "MC_GID_INDEX",
                                        "1",
                                        "MC_ENABLE_DEST_DEVICE_AFFINITY",
                                        "0"),
                                ""))
                .containsExactly(Map.entry("MC_GID_INDEX", "1"));
        assertThatThrownBy(() ->
                        environment(
                                Map.of("MOONCAKE_PROTOCOL", "rdma", "MC_OWNER_DEVICE", "x"), ""))
                .hasMessageContaining("no RDMA device x");
        assertThatThrownBy(() ->
                        environment(Map.of("MOONCAKE_PROTOCOL", "rdma", "MC_GID_INDEX", "x"), ""))
                .hasMessageContaining("MC_GID_INDEX is x");
        assertThatThrownBy(() -> environment(rdma, "0, ?\n1, ?\n2, ?"))
                .hasMessageContaining("no-unused-rnic-match")
                .hasMessageContaining("MOONCAKE_DEVICE");
    }

    @Test
    void rdmaWithoutADeviceIsRefused() {
        assertThatThrownBy(() -> environment(Map.of("MOONCAKE_PROTOCOL", "rdma"), ""))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("MOONCAKE_PROTOCOL=tcp");
    }

    private Map<String, String> environment(Map<String, String> environment, String csv) {
        var host = host();
        return RdmaEnvironment.of(environment, host, () -> Gpus.parse(csv, host));
    }

    @Test
    void theCommandPrintsSettingsOrOneJsonObject() throws Exception {
        tree.device("mlx5_0", "0000:17:00.0", 0, "gpu0rdma0").up("mlx5_0");
        tree.pci("0000:18:00.0", 0);
        var gpus = Files.writeString(folder.resolve("gpus.csv"), "0, 00000000:18:00.0\n");
        var typed =
                TypedCommand.of(
                        new RdmaConfigCommand(),
                        Map.of("sysfs", folder.toString(), "gpus", gpus.toString()));
        assertThat(typed.run()).isZero();
        assertThat(typed.printed().toString().lines())
                .containsExactly(
                        "# 0|00000000:18:00.0|0|mlx5_0|exact-netdev",
                        "MC_GID_INDEX=3",
                        "MOONCAKE_DEVICE=mlx5_0",
                        "MC_OWNER_DEVICE=mlx5_0");
        var json = typed.asJson();
        assertThat(json.run()).isZero();
        assertThat(json.printed().toString().lines())
                .containsExactly(
                        "{\"MC_GID_INDEX\":\"3\",\"MOONCAKE_DEVICE\":\"mlx5_0\",\"MC_OWNER_DEVICE\":\"mlx5_0\","
                                + "\"gpus\":[\"0|00000000:18:00.0|0|mlx5_0|exact-netdev\"]}");
    }
}
