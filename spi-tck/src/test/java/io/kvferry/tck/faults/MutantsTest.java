// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

import java.util.List;
import java.util.stream.Stream;

/// The contract finds broken connectors: each mutant fails the test that is there for its defect,
/// which the connector without the defect passes.
class MutantsTest {
    private static final List<Mutation> BACKENDS =
            List.of(
                    new Mutation(
                            BackendMutants.DamagesBytes.class, "everyClaimedRouteMovesItsBytes"),
                    new Mutation(
                            BackendMutants.NotifiesTwice.class,
                            "notificationsComeAfterTheDataOnce"),
                    new Mutation(
                            BackendMutants.NeverCompletes.class,
                            "stridedDescriptorsMoveTheSameBytes"),
                    new Mutation(
                            BackendMutants.DoesWhatItDoesNotClaim.class,
                            "notificationsComeAfterTheDataOnce"),
                    new Mutation(BackendMutants.KeepsDroppedPeers.class, "droppedPeersAreRefused"),
                    new Mutation(BackendMutants.IgnoresDeadlines.class, "deadlinesEndTransfers"));

    private static final List<Mutation> BACKEND_FEATURES =
            List.of(
                    new Mutation(
                            BackendFeatureMutants.FindsStrangers.class,
                            "peersAreFoundOnceTheyAreLoaded"),
                    new Mutation(
                            BackendFeatureMutants.ManagesNothing.class,
                            "selfManagedMetadataNeedsNoOtherExchange"),
                    new Mutation(
                            BackendFeatureMutants.ExplainsByDoing.class, "explanationsMoveNothing"),
                    new Mutation(
                            BackendFeatureMutants.SelectsNothing.class, "emptyListsAreRefused"),
                    new Mutation(
                            BackendFeatureMutants.LosesSomeNotes.class,
                            "manyNotificationsArriveOnce"),
                    new Mutation(
                            BackendFeatureMutants.NotifiesAhead.class,
                            "failedTransfersDoNotNotify"),
                    new Mutation(BackendFeatureMutants.LosesAllWithOne.class, "peersDieAlone"),
                    new Mutation(
                            BackendFeatureMutants.QuiescesTooSoon.class,
                            "quiescedTransfersTouchNothing"),
                    new Mutation(BackendFeatureMutants.SaysAllMoved.class, "failuresNameWhatMoved"),
                    new Mutation(
                            BackendFeatureMutants.SaysMoreThanClaimed.class,
                            "failuresNameWhatMoved"),
                    new Mutation(
                            BackendFeatureMutants.HidesThatItNeedsItsTarget.class,
                            "targetsNeedNoTurnUnlessClaimed"),
                    new Mutation(
                            BackendFeatureMutants.SumsNothing.class, "damageOnTheWayIsNoticed"),
                    new Mutation(BackendFeatureMutants.HasNoBound.class, "fullQueuesRefuse"));

    private static final List<Mutation> CASES =
            List.of(
                    new Mutation(KvMutants.CompletesTwice.class, "everyRankReportsALoadOnce"),
                    new Mutation(KvClaimMutants.SignalsNothing.class, "everyRankReportsALoadOnce"),
                    new Mutation(KvMutants.HitsBeyondThePrompt.class, "staysWithinThePrompt"),
                    new Mutation(
                            KvMutants.IgnoresAlignment.class, "hitsAreWholeBlocksOrReachTheEnd"),
                    new Mutation(KvMutants.ChangesItsMind.class, "repeatedLookupsLeaveNoState"),
                    new Mutation(KvMutants.NeverAnswersRevocations.class, "abortsLeakNothing"),
                    new Mutation(KvMutants.LosesFailures.class, "damagedPayloadsAreNoticed"),
                    new Mutation(
                            KvMutants.NeverLearnsOfFailures.class,
                            "brokenPromisesAreNotRepeatedForEver"),
                    new Mutation(
                            KvBlockMutants.WritesIntoAnyBlock.class,
                            "blocksWithoutALoadAreNotTouched"),
                    new Mutation(
                            KvBlockMutants.WritesIntoAnyBlock.class, "releasedBlocksAreLeftAlone"),
                    new Mutation(KvBlockMutants.WritesAfterARevocation.class, "abortsLeakNothing"),
                    new Mutation(
                            KvBlockMutants.LoadsWhatWasRevoked.class,
                            "loadsRevokedBeforeTheirPlanNeverStart"),
                    new Mutation(
                            KvBlockMutants.SavesAStepLate.class, "laterContentsNeverReachTheStore"),
                    new Mutation(KvMutants.RepeatsItsPlan.class, "plansDrain"),
                    new Mutation(
                            KvMutants.KeepsViews.class, "buildingAPlanChangesNothingOfTheEngine"),
                    new Mutation(KvMutants.SharesItsSchedulerHalf.class, "enginesShareNoState"),
                    new Mutation(
                            KvClaimMutants.ClaimsWhatItCannot.class, "resetMakesEverythingAMiss"),
                    new Mutation(KvClaimMutants.HidesWhatItDoes.class, "eventsTellWhatCanBeLoaded"),
                    new Mutation(KvMutants.LeaksAThread.class, "closingEndsEverything"),
                    new Mutation(
                            KvBlockMutants.SyncLoadsComeLate.class,
                            "synchronousLoadsAreInPlaceInTime"),
                    new Mutation(
                            KvBlockMutants.SavesBehindFailedLoads.class,
                            "blocksBehindAFailedLoadAreNotStored"),
                    new Mutation(
                            KvBlockMutants.SavesBehindFailedLoads.class,
                            "whatRestsOnALoadThatFailedElsewhereIsNotStored"),
                    new Mutation(
                            KvBlockMutants.SavesBehindFailedLoads.class,
                            "aFailedBlockOfAWindowVoidsTheHit"),
                    new Mutation(
                            KvBlockMutants.NamesOneGroupOnly.class,
                            "aFailedLoadNamesTheBlocksOfEveryGroup"),
                    new Mutation(
                            KvBlockMutants.TakesDeviceMemory.class,
                            "deviceRegionsAreRefusedUnlessClaimed"),
                    new Mutation(
                            KvBlockMutants.SavesWhatWasNotComputed.class,
                            "failedForwardPassesStoreNothing"),
                    new Mutation(
                            KvBlockMutants.SavesWhatWasNotComputed.class,
                            "onlyWhatWasNotComputedIsKeptOutOfTheStore"),
                    new Mutation(
                            KvBlockMutants.DropsAllSavesOfSuchAStep.class,
                            "onlyWhatWasNotComputedIsKeptOutOfTheStore"),
                    new Mutation(KvClaimMutants.SharesAStaticField.class, "halvesShareNothing"),
                    new Mutation(
                            KvClaimMutants.TakesLayersAtTheEnd.class,
                            "layersAreTakenBeforeTheStepHasEnded"),
                    new Mutation(
                            KvClaimMutants.QueuesWithoutBound.class,
                            "backPressureRefusesAndRecovers"),
                    new Mutation(
                            KvClaimMutants.RefusesForEver.class, "backPressureRefusesAndRecovers"),
                    new Mutation(KvClaimMutants.ClaimsLeases.class, "leasesAreTakenWhereClaimed"),
                    new Mutation(
                            KvClaimMutants.ClaimsHandshakes.class,
                            "handshakesAreExchangedWhereClaimed"),
                    new Mutation(
                            KvClaimMutants.HidesHandshakes.class,
                            "handshakesAreExchangedWhereClaimed"),
                    new Mutation(KvClaimMutants.HidesItsStore.class, "blocksAreFoundAsClaimed"),
                    new Mutation(
                            KvBlockMutants.FreesTheCacheTooSoon.class,
                            "providedMemoryOutlivesTheHalf"),
                    new Mutation(
                            KvShapeMutants.CountsLayersFromZero.class,
                            "pipelineStagesWorkWhereClaimed"),
                    new Mutation(
                            KvBlockMutants.ForgetsWindows.class, "recurrentStateWorksWhereClaimed"),
                    new Mutation(
                            KvBlockMutants.SavesBehindFailedLoads.class,
                            "aFailedBlockOfAStateVoidsTheHit"),
                    new Mutation(
                            KvShapeMutants.TakesOtherSizesForItsOwn.class,
                            "otherTensorParallelSizesWorkOrFailCleanly"),
                    new Mutation(
                            KvBlockMutants.ForgetsWindows.class, "slidingWindowsWorkOrAreRefused"));

    private static final List<Mutation> ITEMS =
            List.of(
                    new Mutation(EcMutants.CompletesTwice.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.PromisesParts.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.RepeatsItsPlan.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.SavesAStepLate.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.LosesFailures.class, "damagedItemsAreNoticed"),
                    new Mutation(EcMutants.LeavesRoomOfFailedLoads.class, "damagedItemsAreNoticed"),
                    new Mutation(EcMutants.LoadsOverWhatIsThere.class, "loadsDoNotOverwrite"),
                    new Mutation(EcMutants.LoadsOnOneRankOnly.class, "everyRankGetsTheItem"),
                    new Mutation(
                            EcMutants.NeverAnswersRevocations.class, "revokedLoadsAreAnswered"),
                    new Mutation(
                            EcMutants.NeverAnswersRevocations.class, "revokedHoldsAreAnswered"),
                    new Mutation(EcMutants.LoadsWhatWasRevoked.class, "revokedLoadsAreAnswered"),
                    new Mutation(EcMutants.IgnoresModels.class, "modelsAndShapesAreKeptApart"),
                    new Mutation(
                            EcMemoryMutants.AnswersForTheFirst.class,
                            "everyItemOfARequestIsAnsweredFor"),
                    new Mutation(EcMemoryMutants.WritesBehindItsRoom.class, "loadsStayInTheirRoom"),
                    new Mutation(
                            EcMemoryMutants.PublishesNothing.class, "manyItemsAtOnceAreAllServed"),
                    new Mutation(
                            EcMemoryMutants.LosesOneOfMany.class, "manyItemsAtOnceAreAllServed"),
                    new Mutation(
                            EcMemoryMutants.AnnouncesWhatItDidNotSave.class,
                            "savesThatFailAreNoItems"),
                    new Mutation(
                            EcMemoryMutants.SpoilsWhatIsThere.class, "itemsEncodedTwiceAreRight"),
                    new Mutation(
                            EcMemoryMutants.LoadsEachItemOnce.class, "droppedItemsAreLoadedAgain"),
                    new Mutation(EcMemoryMutants.IsNeverIdle.class, "idleConnectorsAskForNoStep"),
                    new Mutation(
                            EcMemoryMutants.FreesTheMemoryTooSoon.class,
                            "providedMemoryOutlivesTheHalves"),
                    new Mutation(
                            EcMemoryMutants.ProvidesUsedMemory.class,
                            "providedMemoryOutlivesTheHalves"),
                    new Mutation(EcMemoryMutants.SignalsNothing.class, "savedItemsAreLoaded"),
                    new Mutation(EcMutants.ChangesItsClaims.class, "callsComeInTheDocumentedOrder"),
                    new Mutation(EcMutants.IgnoresItsRole.class, "rolesAreKept"),
                    new Mutation(EcMutants.LeaksAThread.class, "closingIsSafe"),
                    new Mutation(
                            EcHoldMutants.NeverEndsHolds.class, "holdsEndWhenTheirItemsAreFetched"),
                    new Mutation(
                            EcHoldMutants.HoldsWithoutClaimingIt.class,
                            "holdsEndWhenTheirItemsAreFetched"),
                    new Mutation(EcHoldMutants.HoldsForNobody.class, "nothingIsHeldForNobody"),
                    new Mutation(EcHoldMutants.AnnouncesNothing.class, "eventsTellWhatCanBeLoaded"),
                    new Mutation(EcHoldMutants.AnnouncesTwice.class, "eventsTellWhatCanBeLoaded"),
                    new Mutation(
                            EcHoldMutants.ClaimsHandshakes.class,
                            "handshakesAreExchangedWhereClaimed"),
                    new Mutation(
                            EcHoldMutants.HidesHandshakes.class,
                            "handshakesAreExchangedWhereClaimed"),
                    new Mutation(EcHoldMutants.HidesItsEvents.class, "eventsTellWhatCanBeLoaded"),
                    new Mutation(EcHoldMutants.ResetsNothing.class, "resetMakesEverythingAMiss"));

    @TestFactory
    Stream<DynamicTest> everyEncoderCacheMutantFailsItsTest() {
        return Mutation.areFound(EcMutants.None.class, ITEMS);
    }

    @TestFactory
    Stream<DynamicTest> everyMutantFailsItsTest() {
        return Mutation.areFound(KvMutants.None.class, CASES);
    }

    @TestFactory
    Stream<DynamicTest> everyBackendMutantFailsItsTest() {
        return Mutation.areFound(BackendMutants.None.class, BACKENDS);
    }

    @TestFactory
    Stream<DynamicTest> everyMutantOfABackendsFeatureFailsItsTest() {
        return Mutation.areFound(BackendFeatureMutants.None.class, BACKEND_FEATURES);
    }
}
