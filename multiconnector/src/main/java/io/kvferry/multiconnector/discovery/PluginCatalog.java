// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.toolkit.files.FileTrouble;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Predicate;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// All plugins available to this process. Each kind is searched once, on first request; no plugin
/// code runs before that.
///
/// A plugin is a jar with a `META-INF/services` file, either on the class path or, with the
/// libraries that it brings, in a sub-folder of the plugin folder. Each sub-folder has one class
/// loader, whose parent is the host's: the contracts (`io.kvferry.spi`) are shared, everything else
/// the folder may bring in versions of its own.
///
/// Threading: any thread.
public final class PluginCatalog implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(PluginCatalog.class);

    /// Warnings that this process has given. The command line opens a catalog for its commands, and
    /// the command that runs another one, over the same folders.
    private static final Set<String> WARNED = ConcurrentHashMap.newKeySet();

    private final ReentrantLock lock = new ReentrantLock();
    private final ClassLoader host;
    private final List<Path> folders;
    private final Map<Class<?>, PluginSet<?>> sets = new LinkedHashMap<>();
    private final Map<Class<?>, List<Plugin>> given = new HashMap<>();
    private final Map<String, PluginClassLoader> loaders = new LinkedHashMap<>();

    /// Jars in places that are not searched.
    private final List<String> strays = new ArrayList<>();

    /// Jars in sub-folders that cannot be opened, of whatever kind their plugins are.
    private final List<SkippedPlugin> unreadable = new ArrayList<>();

    private boolean foldersOpened;
    private boolean closed;

    private PluginCatalog(ClassLoader host, List<Path> folders) {
        this.host = host;
        this.folders = List.copyOf(folders);
    }

    /// Plugins on the class path only.
    public static PluginCatalog ofClassPath() {
        return new PluginCatalog(PluginCatalog.class.getClassLoader(), List.of());
    }

    /// Plugins on the class path and in the sub-folders of `folder`.
    ///
    /// @throws KvFerryException BAD_CONFIG when `folder` is not a folder
    public static PluginCatalog of(ClassLoader host, Path folder) {
        return of(host, List.of(folder));
    }

    /// Plugins on the class path and in the sub-folders of each of `folders`.
    ///
    /// @throws KvFerryException BAD_CONFIG when one is not a folder
    public static PluginCatalog of(ClassLoader host, List<Path> folders) {
        for (var folder : folders) {
            if (!Files.isDirectory(folder)) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "plugin folder "
                                + folder
                                + " is not a folder. Create it, with one sub-folder of jars per plugin");
            }
        }
        return new PluginCatalog(host, folders);
    }

    /// Adds a provider that the host made itself, beside those that are found. Before the first
    /// [#of] of its kind.
    ///
    /// @throws KvFerryException INVALID_REQUEST when its kind was asked for already
    public <P extends Plugin> PluginCatalog with(Class<P> kind, P provider) {
        lock.lock();
        try {
            if (sets.containsKey(kind)) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "provider "
                                + provider.name()
                                + " comes too late: "
                                + kind.getSimpleName()
                                + "s have been handed out");
            }
            given.computeIfAbsent(kind, _ -> new ArrayList<>()).add(provider);
            return this;
        } finally {
            lock.unlock();
        }
    }

    /// The plugins of one kind, e.g. `KvConnectorProvider.class`.
    ///
    /// @throws KvFerryException CLOSED after [#close]
    @SuppressWarnings("unchecked") // the map is filled by kind
    public <P extends Plugin> PluginSet<P> of(Class<P> kind) {
        lock.lock();
        try {
            if (closed) {
                throw new KvFerryException(ErrorCode.CLOSED, "the plugin catalog is closed");
            }
            var known = (PluginSet<P>) sets.get(kind);
            if (known == null) {
                known = scan(kind);
                sets.put(kind, known);
            }
            return known;
        } finally {
            lock.unlock();
        }
    }

    private <P extends Plugin> PluginSet<P> scan(Class<P> kind) {
        openFolders();
        var scan = new ProviderScan<>(kind);
        given.getOrDefault(kind, List.of())
                .forEach(provider -> scan.admit(kind.cast(provider), "the host program", ""));
        scan.run(host, "");
        loaders.forEach((name, loader) -> scan.run(loader, name));
        var skipped = new ArrayList<>(unreadable);
        skipped.addAll(scan.skipped());
        return new PluginSet<>(
                kind, scan.found(), skipped, scan.conflicts(), "the class path" + searched());
    }

    private String searched() {
        if (folders.isEmpty()) {
            return ", no plugin folder";
        }
        var text =
                " and "
                        + folders.stream().map(Path::toString).collect(Collectors.joining(", "))
                        + " (sub-folders with jars: "
                        + loaders.size()
                        + ")";
        return strays.isEmpty()
                ? text
                : text
                        + ". Not searched: "
                        + String.join(", ", strays)
                        + " directly in it; give each plugin a sub-folder of its own";
    }

    private void openFolders() {
        if (!foldersOpened) {
            var seen = new HashMap<String, Path>();
            folders.forEach(folder -> open(folder, seen));
            foldersOpened = true;
        }
    }

    /// @param seen jars of all folders so far, by name
    private void open(Path folder, Map<String, Path> seen) {
        for (var sub : list(folder, Files::isDirectory)) {
            var jars = list(sub, file -> file.toString().endsWith(".jar"));
            if (!jars.isEmpty()) {
                jars.forEach(this::check);
                jars.forEach(jar -> warnOfSecond(jar, seen));
                var own = String.valueOf(sub.getFileName());
                var name = loaders.containsKey(own) ? sub.toString() : own;
                loaders.put(
                        name,
                        new PluginClassLoader(
                                "plugin-" + name,
                                jars.stream().map(PluginCatalog::url).toArray(URL[]::new),
                                host));
            }
        }
        var loose =
                list(folder, file -> file.toString().endsWith(".jar")).stream()
                        .map(jar -> String.valueOf(jar.getFileName()))
                        .toList();
        if (!loose.isEmpty()) {
            warnOnce(
                    "plugin folder "
                            + folder
                            + ": "
                            + String.join(", ", loose)
                            + " directly in it: not searched; give each plugin a sub-folder of its own");
        }
        strays.addAll(loose);
    }

    /// Warns if two plugin jars have the same file name. Duplicate libraries are normal, duplicate
    /// plugins are not.
    private static void warnOfSecond(Path jar, Map<String, Path> seen) {
        var before = seen.putIfAbsent(String.valueOf(jar.getFileName()), jar);
        if (before != null) {
            warnOnce(
                    "two plugin jars of one name: "
                            + before
                            + " and "
                            + jar
                            + "; each is loaded apart");
        }
    }

    private static void warnOnce(String warning) {
        if (WARNED.add(warning)) {
            LOG.warn("{}", warning);
        }
    }

    /// Reports a file that is not a jar, because a class loader ignores it silently.
    private void check(Path jar) {
        try (var opened = new JarFile(jar.toFile())) {
            opened.size();
        } catch (IOException e) {
            unreadable.add(
                    new SkippedPlugin(
                            "everything",
                            jar.toString(),
                            new Failure(
                                    ErrorCode.UNAVAILABLE,
                                    FileTrouble.describe("the jar cannot be opened", e)
                                            + "; build or copy it again")));
        }
    }

    private static List<Path> list(Path folder, Predicate<Path> wanted) {
        try (Stream<Path> entries = Files.list(folder)) {
            return entries.filter(wanted).sorted().toList();
        } catch (UncheckedIOException e) {
            throw unlisted(folder, Objects.requireNonNull(e.getCause()));
        } catch (IOException e) {
            throw unlisted(folder, e);
        }
    }

    private static KvFerryException unlisted(Path folder, IOException e) {
        return new KvFerryException(
                ErrorCode.BAD_CONFIG,
                FileTrouble.describe("cannot list plugin folder " + folder, e),
                e);
    }

    private static URL url(Path jar) {
        try {
            return jar.toUri().toURL();
        } catch (MalformedURLException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "cannot address plugin jar " + jar + ": " + e, e);
        }
    }

    /// Closes the class loaders of the plugin folder. Close everything that was opened from them
    /// first. Idempotent.
    @Override
    public void close() {
        var open = new ArrayList<PluginClassLoader>();
        lock.lock();
        try {
            closed = true;
            open.addAll(loaders.values());
            loaders.clear();
            sets.clear();
        } finally {
            lock.unlock();
        }
        IOException first = null;
        for (var loader : open) {
            try {
                loader.close();
            } catch (IOException e) {
                first = first == null ? e : first;
            }
        }
        if (first != null) {
            throw new KvFerryException(
                    ErrorCode.IO, "cannot close the class loader of a plugin: " + first, first);
        }
    }
}
