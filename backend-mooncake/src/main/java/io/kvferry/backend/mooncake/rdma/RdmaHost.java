// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.Collectors;

/// The RDMA devices of a host as sysfs shows them at the time of the call, and which of them to
/// use.
///
/// Threading: immutable.
public final class RdmaHost {
    /// GID indices that are looked at.
    private static final int GIDS = 9;

    private final Path sysfs;
    private final List<RdmaDevice> devices;

    private RdmaHost(Path sysfs, List<RdmaDevice> devices) {
        this.sysfs = sysfs;
        this.devices = devices;
    }

    /// Of this machine.
    public static RdmaHost ofThisMachine() {
        return at(Path.of("/sys"));
    }

    /// @param sysfs where the file system is mounted, `/sys` but for tests; one without devices has
    ///   none
    static RdmaHost at(Path sysfs) {
        var devices = new ArrayList<RdmaDevice>();
        for (Path folder : children(sysfs.resolve("class/infiniband"))) {
            device(folder).ifPresent(devices::add);
        }
        devices.sort(Comparator.comparing(RdmaDevice::name));
        return new RdmaHost(sysfs, List.copyOf(devices));
    }

    /// Empty for one that is not on the PCI bus.
    private static Optional<RdmaDevice> device(Path folder) {
        var ports = new ArrayList<RdmaDevice.Port>();
        var numbers = children(folder.resolve("ports"));
        numbers.sort(Comparator.comparing(RdmaHost::name));
        for (Path port : numbers) {
            ports.add(port(port));
        }
        return pci(folder.resolve("device"))
                .map(pci ->
                        new RdmaDevice(
                                name(folder),
                                pci,
                                numa(folder.resolve("device")),
                                children(folder.resolve("device/net")).stream()
                                        .map(RdmaHost::name)
                                        .sorted()
                                        .toList(),
                                ports));
    }

    private static RdmaDevice.Port port(Path folder) {
        var gids = new ArrayList<Optional<RdmaDevice.Gid>>();
        for (int index = 0; index < GIDS; index++) {
            String netdev = read(folder.resolve("gid_attrs/ndevs/" + index));
            String gid = read(folder.resolve("gids/" + index)).toLowerCase(Locale.ROOT);
            boolean zero = gid.chars().allMatch(c -> c == '0' || c == ':');
            gids.add(
                    netdev.isEmpty() || zero
                            ? Optional.empty()
                            : Optional.of(
                                    new RdmaDevice.Gid(
                                            gid.startsWith("fe80"),
                                            read(folder.resolve("gid_attrs/types/" + index))
                                                    .equals("RoCE v2"))));
        }
        return new RdmaDevice.Port(read(folder.resolve("state")).contains("ACTIVE"), gids);
    }

    /// The device is a link to its folder, which has the name of the address; a copy of a tree has
    /// it in `uevent`.
    private static Optional<PciAddress> pci(Path device) {
        try {
            var linked = PciAddress.of(name(device.toRealPath()));
            if (linked.isPresent()) {
                return linked;
            }
        } catch (IOException _) {
            return Optional.empty();
        }
        return read(device.resolve("uevent"))
                .lines()
                .filter(line -> line.startsWith("PCI_SLOT_NAME="))
                .findFirst()
                .flatMap(line -> PciAddress.of(line.substring(line.indexOf('=') + 1)));
    }

    private static int numa(Path device) {
        try {
            return Integer.parseInt(read(device.resolve("numa_node")));
        } catch (NumberFormatException _) {
            return -1;
        }
    }

    private static String name(Path path) {
        return String.valueOf(path.getFileName());
    }

    /// Without blanks around it; a file that cannot be read is empty, as GIDs that are not set are.
    private static String read(Path file) {
        try {
            return Files.readString(file, StandardCharsets.ISO_8859_1).strip();
        } catch (IOException _) {
            return "";
        }
    }

    private static List<Path> children(Path folder) {
        var all = new ArrayList<Path>();
        try (var stream = Files.newDirectoryStream(folder)) {
            stream.forEach(all::add);
        } catch (IOException | DirectoryIteratorException _) {
            return all; // no such folder: nothing there
        }
        return all;
    }

    /// By name.
    List<RdmaDevice> devices() {
        return devices;
    }

    public boolean isEmpty() {
        return devices.isEmpty();
    }

    /// NUMA node of a device on the PCI bus, -1 where it is not known.
    int numaOf(PciAddress pci) {
        String address = pci.toString();
        return numa(sysfs.resolve("bus/pci/devices").resolve(address.substring(4)));
    }

    /// The GID index that the most active ports have: with an address of RoCE v2 that is not
    /// link-local, else one that is not link-local, else one of RoCE v2, else any; of equals the
    /// lowest.
    public OptionalInt gidIndex() {
        int best = -1;
        int[] most = new int[4];
        for (int index = 0; index < GIDS; index++) {
            int[] counts = counts(index);
            if (Arrays.compare(counts, most) > 0) {
                best = index;
                most = counts;
            }
        }
        return best < 0 ? OptionalInt.empty() : OptionalInt.of(best);
    }

    private int[] counts(int index) {
        var counts = new int[4];
        for (RdmaDevice device : devices) {
            for (RdmaDevice.Port port : device.ports()) {
                if (port.active() && port.gid(index).isPresent()) {
                    var gid = port.gid(index).get();
                    counts[0] += gid.roceV2() && !gid.linkLocal() ? 1 : 0;
                    counts[1] += gid.linkLocal() ? 0 : 1;
                    counts[2] += gid.roceV2() ? 1 : 0;
                    counts[3]++;
                }
            }
        }
        return counts;
    }

    /// The names of all devices that are active for a GID index, joined by commas; empty for none.
    public String activeDevices(int gidIndex) {
        return devices.stream()
                .filter(device -> device.isActiveFor(gidIndex))
                .map(RdmaDevice::name)
                .collect(Collectors.joining(","));
    }

    /// Checks a list of devices.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for an empty entry, a device that is not
    ///   there, or one that is not active for the index
    public void check(String list, int gidIndex) {
        for (String entry : list.split(",", -1)) {
            String name = entry.strip();
            if (name.isEmpty()) {
                throw bad("the list of RDMA devices '" + list + "' has an empty entry");
            }
            RdmaDevice device =
                    devices.stream()
                            .filter(one -> one.name().equals(name))
                            .findFirst()
                            .orElseThrow(
                                    () -> bad("no RDMA device " + name + "; there are " + names()));
            if (!device.isActiveFor(gidIndex)) {
                throw bad(
                        "RDMA device "
                                + name
                                + " has no active port with the GID index "
                                + gidIndex);
            }
        }
    }

    /// What is there, for messages.
    public String names() {
        return devices.isEmpty()
                ? "none"
                : devices.stream().map(RdmaDevice::name).collect(Collectors.joining(", "));
    }

    private static KvFerryException bad(String text) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, text);
    }
}
