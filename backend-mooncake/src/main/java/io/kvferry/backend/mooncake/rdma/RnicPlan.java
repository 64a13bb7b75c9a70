// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/// One RDMA device for each GPU.
///
/// @param clear whether every GPU has one, and none was chosen among equals by its name alone
record RnicPlan(List<Line> lines, boolean clear) {
    RnicPlan {
        lines = List.copyOf(lines);
    }

    /// @param index physical index of the GPU
    /// @param numa node of it, -1 where it is not known
    record Gpu(int index, Optional<PciAddress> pci, int numa) {}

    /// @param device empty for none
    record Line(Gpu gpu, String device, Reason reason) {
        /// `gpu|pci|numa|device|reason`.
        @Override
        public String toString() {
            return gpu.index()
                    + "|"
                    + gpu.pci().map(PciAddress::toString).orElse("")
                    + "|"
                    + gpu.numa()
                    + "|"
                    + device
                    + "|"
                    + reason.text;
        }
    }

    /// Why a device was chosen, in the words of vLLM's scripts.
    enum Reason {
        EXACT_NETDEV("exact-netdev"),
        AMBIGUOUS_EXACT_NETDEV("ambiguous-exact-netdev"),
        SAME_NUMA_PCI_DISTANCE("same-numa-pci-distance"),
        GLOBAL_PCI_DISTANCE("global-pci-distance"),
        NO_UNUSED_RNIC_MATCH("no-unused-rnic-match");

        private final String text;

        Reason(String text) {
            this.text = text;
        }
    }

    /// First the devices with a network interface `gpu<i>rdma<k>`, then for the other GPUs in their
    /// order the nearest device that is not taken, if possible of the same NUMA node.
    static RnicPlan of(List<Gpu> gpus, List<RdmaDevice> devices) {
        Map<Integer, Line> lines = new HashMap<>();
        Set<String> taken = new HashSet<>();
        boolean clear = true;
        for (Gpu gpu : gpus) {
            List<RdmaDevice> named =
                    devices.stream()
                            .filter(device -> isNamedAfter(device, gpu.index()))
                            .sorted(Comparator.comparing(RdmaDevice::name))
                            .toList();
            if (!named.isEmpty()) {
                boolean one = named.size() == 1;
                clear &= one;
                String device = named.getFirst().name();
                taken.add(device);
                lines.put(
                        gpu.index(),
                        new Line(
                                gpu,
                                device,
                                one ? Reason.EXACT_NETDEV : Reason.AMBIGUOUS_EXACT_NETDEV));
            }
        }
        for (Gpu gpu : gpus) {
            if (!lines.containsKey(gpu.index())) {
                Line line = nearest(gpu, devices, taken);
                clear &= line.reason() != Reason.NO_UNUSED_RNIC_MATCH;
                taken.add(line.device());
                lines.put(gpu.index(), line);
            }
        }
        var ordered = new ArrayList<Line>();
        gpus.forEach(gpu -> ordered.add(lines.get(gpu.index())));
        return new RnicPlan(ordered, clear);
    }

    private static boolean isNamedAfter(RdmaDevice device, int gpu) {
        return device.netdevs().stream()
                .anyMatch(netdev -> netdev.matches("gpu" + gpu + "rdma[0-9]+"));
    }

    private static Line nearest(Gpu gpu, List<RdmaDevice> devices, Set<String> taken) {
        List<RdmaDevice> free =
                devices.stream()
                        .filter(device -> !taken.contains(device.name()))
                        .sorted(
                                Comparator.comparingLong((RdmaDevice device) ->
                                                PciAddress.distance(
                                                        gpu.pci(), Optional.of(device.pci())))
                                        .thenComparing(RdmaDevice::name))
                        .toList();
        Optional<RdmaDevice> near =
                free.stream()
                        .filter(device -> gpu.numa() >= 0 && device.numa() == gpu.numa())
                        .findFirst();
        if (near.isPresent()) {
            return new Line(gpu, near.get().name(), Reason.SAME_NUMA_PCI_DISTANCE);
        }
        return free.isEmpty()
                ? new Line(gpu, "", Reason.NO_UNUSED_RNIC_MATCH)
                : new Line(gpu, free.getFirst().name(), Reason.GLOBAL_PCI_DISTANCE);
    }

    /// The devices in the order of the GPUs, joined by commas, as `MOONCAKE_DEVICE` wants them.
    String list() {
        return lines.stream()
                .map(Line::device)
                .filter(device -> !device.isEmpty())
                .collect(Collectors.joining(","));
    }
}
