// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.SpiVersion;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.ServiceConfigurationError;
import java.util.ServiceLoader;

/// Runs [ServiceLoader] over one class loader after the other and keeps what is usable apart from
/// what is not.
final class ProviderScan<P extends Plugin> {
    /// A loader that fails without moving on would never end; no real class path has that many
    /// broken entries.
    private static final int MAX_BROKEN = 1_000;

    private final Class<P> kind;
    private final List<FoundPlugin<P>> found = new ArrayList<>();
    private final List<SkippedPlugin> skipped = new ArrayList<>();
    private final List<String> conflicts = new ArrayList<>();

    ProviderScan(Class<P> kind) {
        this.kind = kind;
    }

    List<FoundPlugin<P>> found() {
        return found;
    }

    List<SkippedPlugin> skipped() {
        return skipped;
    }

    /// One sentence for every provider class that two jars of one class loader bring.
    List<String> conflicts() {
        return conflicts;
    }

    void run(ClassLoader loader, String folder) {
        conflicts.addAll(ServiceFiles.namedTwice(kind, loader));
        Iterator<ServiceLoader.Provider<P>> providers =
                ServiceLoader.load(kind, loader).stream().iterator();
        for (int broken = 0; broken < MAX_BROKEN; ) {
            try {
                if (!providers.hasNext()) {
                    return;
                }
                var provider = providers.next();
                admit(provider, folder);
            } catch (ServiceConfigurationError | LinkageError e) {
                // Unreadable service file, or an entry that is not a provider: skip only this
                // plugin.
                broken++;
                skip(
                        PluginSet.label(kind),
                        folder.isEmpty() ? "the class path" : "plugin folder " + folder,
                        e);
            }
        }
    }

    private void admit(ServiceLoader.Provider<P> provider, String folder) {
        var where = location(provider.type());
        try {
            admit(provider.get(), where, folder);
        } catch (ServiceConfigurationError | LinkageError e) {
            skip(provider.type().getName(), where, e);
        }
    }

    void admit(P plugin, String where, String folder) {
        var type = plugin.getClass().getName();
        try {
            var range = plugin.spiVersions();
            if (!range.accepts(SpiVersion.CURRENT)) {
                skipped.add(
                        new SkippedPlugin(
                                type,
                                where,
                                new Failure(
                                        ErrorCode.INCOMPATIBLE,
                                        "built for SPI "
                                                + range
                                                + ", this host speaks "
                                                + SpiVersion.CURRENT
                                                + "; install a release of the plugin that matches")));
                return;
            }
            // Called here, so that a plugin that throws is skipped and not fatal later.
            plugin.aliases();
            found.add(new FoundPlugin<>(plugin.name(), plugin, where, folder));
        } catch (LinkageError | RuntimeException e) {
            skip(type, where, e);
        }
    }

    private void skip(String what, String where, Throwable e) {
        var reason = e instanceof ServiceConfigurationError ? e.getMessage() : e.toString();
        var cause = e.getCause() == null ? "" : ", because " + e.getCause();
        skipped.add(
                new SkippedPlugin(
                        what,
                        where,
                        new Failure(ErrorCode.UNAVAILABLE, "cannot be loaded: " + reason + cause)));
    }

    private static String location(Class<?> type) {
        var source = type.getProtectionDomain().getCodeSource();
        if (source == null || source.getLocation() == null) {
            return "the JDK";
        }
        var url = source.getLocation();
        return url.getProtocol().equals("file") ? url.getPath() : url.toString();
    }
}
