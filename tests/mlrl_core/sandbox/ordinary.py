"""Programs as people write them, not attacks: name -> source. ``./input`` holds train.csv and test.csv (tabular,
``id``, ten numeric features, ``target``) and ``images``."""

HEAD = (
    "import numpy as np, pandas as pd\ntrain = pd.read_csv('input/train.csv'); test = pd.read_csv('input/test.csv')\n"
)
HEAD += "X = train.drop(columns=['id', 'target']); y = train.target; T = test.drop(columns=['id'])\n"
TAIL = "\npd.DataFrame({'id': test.id, 'target': p}).to_csv('submission.csv', index=False)\n"

TABULAR = {
    "grid_search_two_jobs": """
from sklearn.model_selection import GridSearchCV
from sklearn.linear_model import LogisticRegression
search = GridSearchCV(LogisticRegression(max_iter=50), {'C': [0.1, 1.0]}, n_jobs=2, cv=2).fit(X, y)
p = search.predict_proba(T)[:, 1]
""",
    "forest_two_jobs": """
from sklearn.ensemble import RandomForestClassifier
p = RandomForestClassifier(20, n_jobs=2, max_depth=8).fit(X[:20000], y[:20000]).predict_proba(T)[:, 1]
""",
    "histogram_boosting": """
from sklearn.ensemble import HistGradientBoostingClassifier
p = HistGradientBoostingClassifier(max_iter=20).fit(X, y).predict_proba(T)[:, 1]
""",
    "pipeline_with_cache": """
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.decomposition import PCA
from sklearn.linear_model import SGDClassifier
import tempfile
model = make_pipeline(StandardScaler(), PCA(5), SGDClassifier(loss='log_loss'), memory=tempfile.mkdtemp()).fit(X, y)
p = model.predict_proba(T)[:, 1]
""",
    "cross_validation_joblib": """
from joblib import Parallel, delayed
from sklearn.tree import DecisionTreeClassifier
fits = Parallel(n_jobs=2)(delayed(lambda s: DecisionTreeClassifier(max_depth=6, random_state=s).fit(X, y))(s)
                          for s in range(4))
p = np.mean([fit.predict_proba(T)[:, 1] for fit in fits], axis=0)
""",
    "matplotlib_to_file": """
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
plt.hist(X.iloc[:, 0], bins=50); plt.savefig('histogram.png'); p = np.full(len(T), y.mean())
""",
    "progress_bar": """
from tqdm import tqdm
total = 0
for _ in tqdm(range(3000)): total += 1
p = np.full(len(T), y.mean())
""",
    "multiprocessing_pool": """
import multiprocessing
def square(number): return number * number
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool: total = sum(pool.map(square, range(10000)))
    with multiprocessing.get_context('spawn').Pool(2) as pool: pool.map(abs, range(10))
    p = np.full(len(T), y.mean())
""",
    "threads_and_queues": """
import concurrent.futures, threading, queue, asyncio
with concurrent.futures.ThreadPoolExecutor(8) as pool: list(pool.map(str, range(1000)))
with concurrent.futures.ProcessPoolExecutor(2) as pool: list(pool.map(str, range(100)))
async def nothing(): await asyncio.sleep(0.01)
asyncio.run(nothing()); p = np.full(len(T), y.mean())
""",
    "shared_memory": """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=8_000_000)
view = np.ndarray((1_000_000,), buffer=block.buf); view[:] = 1.0; assert view.sum() == 1_000_000
del view; block.close(); block.unlink(); p = np.full(len(T), y.mean())
""",
    "pickled_model": """
import pickle, pathlib, sqlite3, tempfile
from sklearn.linear_model import LinearRegression
pathlib.Path('models').mkdir(); pickle.dump(LinearRegression().fit(X, y), open('models/m.pkl', 'wb'))
sqlite3.connect('models/x.db').execute('create table t (a)'); tempfile.NamedTemporaryFile().write(b'x')
p = pickle.load(open('models/m.pkl', 'rb')).predict(T)
""",
    "subprocess_and_time": """
import subprocess, time, datetime, random, uuid, socket, platform, getpass
print(subprocess.run(['ls', 'input'], capture_output=True, text=True).stdout, time.time(), datetime.datetime.now(),
      uuid.uuid4(), socket.gethostname(), platform.platform(), getpass.getuser())
p = np.full(len(T), y.mean())
""",
    "text_vectors": """
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
words = [f'word{n}' for n in range(5000)]
generator = np.random.default_rng(0)
texts = [' '.join(generator.choice(words, 400)) for _ in range(20000)]
matrix = TfidfVectorizer(max_features=20000).fit_transform(texts); print(matrix.shape)
p = np.full(len(T), y.mean())
""",
}

# Packages that the image has and a small environment may lack.
IMAGE_ONLY = {
    "lightgbm": """
import lightgbm
p = lightgbm.LGBMClassifier(n_estimators=30, n_jobs=2, verbose=-1).fit(X, y).predict_proba(T)[:, 1]
""",
    "xgboost": """
import xgboost
p = xgboost.XGBClassifier(n_estimators=30, n_jobs=2).fit(X, y).predict_proba(T)[:, 1]
""",
    "polars": """
import polars as pl
frame = pl.read_csv('input/train.csv').group_by('target').agg(pl.all().mean()).sort('target')
frame.write_parquet('means.parquet'); pl.read_parquet('means.parquet'); p = np.full(len(T), y.mean())
""",
    "opencv_on_500_jpegs": """
import cv2, glob
from skimage.feature import hog
paths = sorted(glob.glob('input/images/*.jpg')); assert len(paths) == 500
images = [cv2.resize(cv2.imread(path), (64, 64)) for path in paths]
features = [hog(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)) for image in images[:100]]
p = np.full(len(T), y.mean())
""",
    "statsmodels": """
import statsmodels.api as sm
p = sm.GLM(y[:5000], sm.add_constant(X[:5000]), family=sm.families.Binomial()).fit().predict(sm.add_constant(T))
""",
    "pillow": """
from PIL import Image
import glob
total = sum(np.asarray(Image.open(path).resize((32, 32))).mean() for path in glob.glob('input/images/*.jpg')[:100])
p = np.full(len(T), y.mean())
""",
}

TORCH = {
    "torch_dataloader_workers": """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.tensor(X.values, dtype=torch.float32), torch.tensor(y.values, dtype=torch.float32))
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for features, target in DataLoader(data, batch_size=1024, shuffle=True, num_workers=2):
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(features)[:, 0], target)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
torch.save(model.state_dict(), 'model.pt'); model.load_state_dict(torch.load('model.pt'))
p = torch.sigmoid(model(torch.tensor(T.values, dtype=torch.float32)))[:, 0].detach().numpy()
""",
}


def source(body: str) -> str:
    return HEAD + body + TAIL if "__main__" not in body else HEAD + body + "    " + TAIL.strip() + "\n"
