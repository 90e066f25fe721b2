"""The Informer as a forecaster: its network, training, file. torch is loaded on first use."""

from migrator.forecast.informer.forecaster import InformerForecaster

FORECASTERS = (InformerForecaster(),)
